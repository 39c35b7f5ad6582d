// Dry runs: everything is checked, nothing is written. Also tests how unknown fields are reported,
// if the server can do that.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

class DryRun : public WidgetCase {};

TEST_F(DryRun, ACreateIsShownAndNotStored) {
  Reply shown = ask("POST", widgets() + "?dryRun=All", widget("a"));
  ASSERT_TRUE(is_code(shown, 201));
  EXPECT_EQ(shown.body["spec"]["size"], 1);
  EXPECT_NE(meta(shown.body, "uid"), "");
  EXPECT_EQ(get(widgets() + "/a").code, 404);
}

TEST_F(DryRun, WhatIsWrongIsSaid) {
  EXPECT_TRUE(is_failure(ask("POST", widgets() + "?dryRun=All", widget("a", {{"size", 11}})), 422,
                         "Invalid"));
  make(secrets(), named("b"));
  EXPECT_TRUE(is_failure(ask("POST", secrets() + "?dryRun=All", named("b")), 409, "AlreadyExists"));
}

TEST_F(DryRun, AnUpdateAndAPatchAreShownAndNotStored) {
  Json made = make(widgets(), widget("a"));
  Json object = made;
  object["spec"]["size"] = 4;
  Reply shown = ask("PUT", widgets() + "/a?dryRun=All", object);
  ASSERT_TRUE(is_code(shown, 200));
  EXPECT_EQ(shown.body["spec"]["size"], 4);
  shown = patch(widgets() + "/a?dryRun=All", {{"spec", {{"size", 5}}}});
  ASSERT_TRUE(is_code(shown, 200));
  EXPECT_EQ(shown.body["spec"]["size"], 5);
  EXPECT_EQ(get(widgets() + "/a").body, made);
}

TEST_F(DryRun, ADeleteLeavesTheObject) {
  Json made = make(secrets(), named("a"));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a?dryRun=All"), 200));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a", {{"dryRun", {"All"}}}), 200));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "?dryRun=All"), 200));
  EXPECT_EQ(get(secrets() + "/a").body, made);
}

TEST_F(DryRun, AnotherValueThanAllIsRefused) {
  EXPECT_TRUE(is_failure(ask("POST", secrets() + "?dryRun=Some", named("a")), 422, "Invalid"));
  EXPECT_EQ(get(secrets() + "/a").code, 404);
  Json made = make(secrets(), named("a"));
  EXPECT_TRUE(is_failure(ask("DELETE", secrets() + "/a?dryRun=Some"), 422, "Invalid"));
  EXPECT_TRUE(is_failure(ask("DELETE", secrets() + "/a", {{"dryRun", {"Some"}}}), 422, "Invalid"));
  // 400, but 500 from kube-apiserver 1.20.
  EXPECT_GE(ask("DELETE", secrets() + "/a", {{"dryRun", "All"}}).code, 400);
  EXPECT_GE(ask("DELETE", secrets() + "/a", {{"preconditions", {{"uid", 5}}}}).code, 400);
  EXPECT_TRUE(is_failure(ask("DELETE", secrets() + "?dryRun=Some"), 422, "Invalid"));
  EXPECT_EQ(get(secrets() + "/a").body, made);
}

// A server that checks fields declares it where kubectl looks: in the parameters of PATCH.
class FieldValidation : public WidgetCase {
 protected:
  static bool offered() {
    const Json document = get("/openapi/v2").body;
    const Json* paths = find_member(document, "paths");
    return paths != nullptr && dump_json(*paths).find("\"fieldValidation\"") != std::string::npos;
  }
};

TEST_F(FieldValidation, StrictRefusesUnknownFields) {
  NEEDS(offered(), "the server does not serve fieldValidation");
  Reply refused =
      ask("POST", widgets() + "?fieldValidation=Strict", widget("a", {{"colour", "red"}}));
  ASSERT_TRUE(is_failure(refused, 400, "BadRequest"));
  EXPECT_NE(refused.body["message"].get<std::string>().find(
                "strict decoding error: unknown field \"spec.colour\""),
            std::string::npos)
      << refused.text;
}

TEST_F(FieldValidation, WarnWarnsOfThem) {
  NEEDS(offered(), "the server does not serve fieldValidation");
  Reply made = ask("POST", widgets() + "?fieldValidation=Warn", widget("a", {{"colour", "red"}}));
  ASSERT_TRUE(is_code(made, 201));
  EXPECT_EQ(made.header("warning"), "299 - \"unknown field \\\"spec.colour\\\"\"");
}

}  // namespace
}  // namespace lockstep::conformance
