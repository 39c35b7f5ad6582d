// Replies to requests that a server can't serve.
#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

class Errors : public Case {
 protected:
  Reply post(const std::string& body, const std::string& type = "application/json") {
    return server().send(
        {.method = "POST", .target = secrets(), .headers = {{"Content-Type", type}}, .body = body});
  }
};

TEST_F(Errors, WithoutCredentialsEverythingIs401) {
  NEEDS(server().target().headers.contains("Authorization"),
        "the client authenticates with a certificate, not with a header");
  Reply refused = server().send_bare(
      {.target = secrets(), .headers = {{"Authorization", "Bearer no-such-token"}}});
  EXPECT_TRUE(is_failure(refused, 401, "Unauthorized"));
  EXPECT_EQ(refused.body["message"], "Unauthorized");
}

TEST_F(Errors, ABodyThatIsNotJsonIs400) {
  EXPECT_TRUE(is_failure(post("{\"metadata\": "), 400, "BadRequest"));
  EXPECT_TRUE(is_failure(post("nonsense"), 400, "BadRequest"));
}

TEST_F(Errors, AnEmptyBodyIsRefused) {
  EXPECT_TRUE(is_failure(post(""), 400, "BadRequest"));
}

TEST_F(Errors, AFieldOfTheWrongTypeIs400) {
  EXPECT_TRUE(is_failure(post(R"({"metadata": {"name": 7}})"), 400, "BadRequest"));
  EXPECT_TRUE(
      is_failure(post(R"({"metadata": {"name": "a", "labels": {"x": 1}}})"), 400, "BadRequest"));
}

TEST_F(Errors, JsonOfEndlessDepthIs400) {
  std::string deep = R"({"metadata":{"name":"a"},"x":)" + std::string(100'000, '[') +
                     std::string(100'000, ']') + "}";
  EXPECT_TRUE(is_failure(post(deep), 400, "BadRequest"));
}

TEST_F(Errors, ABodyOfMoreThan3MiBIs413) {
  Json object = named("a");
  object["metadata"]["annotations"] = {{"bulk", std::string(3'200'000, 'x')}};
  EXPECT_TRUE(is_failure(post(dump_json(object)), 413, "RequestEntityTooLarge"));
}

TEST_F(Errors, AnUnknownPathIs404) {
  EXPECT_EQ(get("/no/such/path").code, 404);
}

TEST_F(Errors, AnUnknownSortOfObjectIs404) {
  EXPECT_EQ(get(path("v1", "nosuchthings")).code, 404);
  EXPECT_EQ(get(path("no.such.group/v1", "things")).code, 404);
  EXPECT_EQ(get(path("lockstep.dev/v9", "trainingjobs")).code, 404);
}

TEST_F(Errors, AMethodThatIsNotServedIs405) {
  EXPECT_TRUE(is_failure(ask("PUT", secrets(), named("a")), 405, "MethodNotAllowed"));
  EXPECT_TRUE(is_failure(ask("POST", secrets() + "/a", named("a")), 405, "MethodNotAllowed"));
}

TEST_F(Errors, ABodyOfAnUnknownMediaTypeIs415) {
  EXPECT_TRUE(
      is_failure(post(R"({"metadata":{"name":"a"}})", "text/plain"), 415, "UnsupportedMediaType"));
}

TEST_F(Errors, APatchOfAnUnknownMediaTypeIs415) {
  make(secrets(), named("a"));
  Reply refused = patch(secrets() + "/a", Json::object(), "application/json");
  EXPECT_TRUE(is_failure(refused, 415, "UnsupportedMediaType"));
}

TEST_F(Errors, AnAcceptThatCanNotBeServedIs406) {
  Reply refused = server().send({.target = secrets(), .headers = {{"Accept", "text/html"}}});
  EXPECT_TRUE(is_failure(refused, 406, "NotAcceptable"));
}

TEST_F(Errors, YamlIsAsGoodAsJson) {
  Reply made = post("metadata:\n  name: a\n", "application/yaml");
  ASSERT_TRUE(is_code(made, 201));
  EXPECT_EQ(meta(made.body, "name"), "a");
}

TEST_F(Errors, HealthIsOkInPlainText) {
  for (const char* path : {"/healthz", "/livez", "/readyz"}) {
    Reply reply = get(path);
    EXPECT_EQ(reply.code, 200) << path;
    EXPECT_EQ(reply.text, "ok");
  }
}

}  // namespace
}  // namespace lockstep::conformance
