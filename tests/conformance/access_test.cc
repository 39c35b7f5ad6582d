// Access reviews, as `kubectl auth can-i` requests them.
#include <algorithm>

#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

class Access : public Case {
 protected:
  static Json review(const std::string& kind, const Json& spec) {
    return {{"apiVersion", "authorization.k8s.io/v1"}, {"kind", kind}, {"spec", spec}};
  }
  Reply ask_access(const Json& spec) {
    return ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
               review("SelfSubjectAccessReview", spec));
  }
  Reply ask_rules(const Json& spec) {
    return ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
               review("SelfSubjectRulesReview", spec));
  }
};

TEST_F(Access, WhoDidAllThatMayDoIt) {
  Json spec = {{"resourceAttributes",
                {{"namespace", namespace_}, {"verb", "create"}, {"resource", "pods"}}}};
  Reply reply = ask_access(spec);
  ASSERT_TRUE(is_code(reply, 201));
  EXPECT_EQ(reply.body["kind"], "SelfSubjectAccessReview");
  EXPECT_EQ(reply.body["spec"], spec);
  EXPECT_EQ(reply.body["status"]["allowed"], true);
  reply = ask_access({{"nonResourceAttributes", {{"path", "/healthz"}, {"verb", "get"}}}});
  ASSERT_TRUE(is_code(reply, 201));
  EXPECT_EQ(reply.body["status"]["allowed"], true);
}

TEST_F(Access, AReviewIsAboutOneThing) {
  EXPECT_TRUE(is_failure(ask_access(Json::object()), 422, "Invalid"));
  EXPECT_TRUE(is_failure(ask_access({{"resourceAttributes", {{"verb", "get"}}},
                                     {"nonResourceAttributes", {{"path", "/"}, {"verb", "get"}}}}),
                         422, "Invalid"));
  EXPECT_TRUE(is_failure(ask_rules(Json::object()), 400, "BadRequest"));
}

TEST_F(Access, TheRulesSayWhatIsAllowed) {
  Reply reply = ask_rules({{"namespace", namespace_}});
  ASSERT_TRUE(is_code(reply, 201));
  const Json& status = reply.body["status"];
  EXPECT_EQ(status["incomplete"], false);
  const Json& rules = status["resourceRules"];
  EXPECT_TRUE(std::any_of(rules.begin(), rules.end(), [](const Json& rule) {
    return rule["verbs"] == Json({"*"}) && rule["resources"] == Json({"*"});
  })) << rules;
  EXPECT_TRUE(status["nonResourceRules"].is_array());
}

TEST_F(Access, AUserIsToldItsName) {
  NEEDS(server().serves("authentication.k8s.io/v1", "selfsubjectreviews"),
        "the server is older than 1.28");
  const Reply reply =
      ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
          {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "SelfSubjectReview"}});
  ASSERT_TRUE(is_code(reply, 201));
  EXPECT_EQ(reply.body["kind"], "SelfSubjectReview");
  const Json& user = reply.body["status"]["userInfo"];
  EXPECT_NE(user["username"], "");
  EXPECT_TRUE(user["groups"].is_array()) << user;
}

TEST_F(Access, NoReviewIsKept) {
  EXPECT_TRUE(is_failure(get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), 405,
                         "MethodNotAllowed"));
}

}  // namespace
}  // namespace lockstep::conformance
