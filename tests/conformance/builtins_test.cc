// Secrets, configmaps, services, namespaces and nodes: what each does in addition to being stored.
#include "common/base/base64.h"
#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

class Secrets : public Case {};

TEST_F(Secrets, StringDataBecomesDataAndIsNeverShown) {
  Json object = named("a");
  object["data"] = {{"x", base64_encode("old")}, {"y", base64_encode("kept")}};
  object["stringData"] = {{"x", "new"}};
  Json made = make(secrets(), object);
  EXPECT_EQ(made["data"], Json({{"x", base64_encode("new")}, {"y", base64_encode("kept")}}));
  EXPECT_FALSE(made.contains("stringData"));
}

TEST_F(Secrets, TheyAreOpaqueByDefault) {
  EXPECT_EQ(make(secrets(), named("a"))["type"], "Opaque");
}

TEST_F(Secrets, DataThatIsNotBase64Is400) {
  Json object = named("a");
  object["data"] = {{"x", "*"}};
  EXPECT_TRUE(is_failure(ask("POST", secrets(), object), 400, "BadRequest"));
}

TEST_F(Secrets, AKeyThatIsNoFileNameIs422) {
  Json object = named("a");
  object["stringData"] = {{"a/b", "x"}};
  Reply refused = ask("POST", secrets(), object);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "data[a/b]"));
}

TEST_F(Secrets, TheirTypeCanNotChange) {
  Json made = make(secrets(), named("a"));
  made["type"] = "lockstep.dev/token";
  Reply refused = ask("PUT", secrets() + "/a", made);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "type"));
}

TEST_F(Secrets, ImmutableOnesStayAsTheyAre) {
  Json object = named("a");
  object["stringData"] = {{"x", "1"}};
  object["immutable"] = true;
  make(secrets(), object);
  Reply refused = patch(secrets() + "/a", {{"stringData", {{"x", "2"}}}});
  EXPECT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueForbidden", "data"));
  EXPECT_TRUE(is_code(patch(secrets() + "/a", {{"metadata", {{"labels", {{"x", "y"}}}}}}), 200));
}

class ConfigMaps : public Case {};

TEST_F(ConfigMaps, TheyKeepTextAndBytes) {
  Json object = named("a");
  object["data"] = {{"text", "one\ntwo \xC3\xA4"}};
  object["binaryData"] = {{"bytes", base64_encode(std::string("\0\xFF", 2))}};
  Json made = make(configmaps(), object);
  EXPECT_EQ(made["data"], object["data"]);
  EXPECT_EQ(made["binaryData"], object["binaryData"]);
}

TEST_F(ConfigMaps, OneKeyCanNotBeTextAndBytes) {
  Json object = named("a");
  object["data"] = {{"x", "1"}};
  object["binaryData"] = {{"x", base64_encode("1")}};
  EXPECT_TRUE(is_failure(ask("POST", configmaps(), object), 422, "Invalid"));
}

TEST_F(ConfigMaps, MoreThanAMiBIsRefused) {
  Json object = named("a");
  object["data"] = {{"x", std::string((1u << 20) + 1, 'x')}};
  Reply refused = ask("POST", configmaps(), object);
  EXPECT_TRUE(is_failure(refused, 422, "Invalid"));
}

class Services : public Case {
 protected:
  std::string services() const { return path("v1", "services"); }
  static Json service(const std::string& name, const Json& spec) {
    Json object = named(name);
    object["spec"] = spec;
    return object;
  }
};

TEST_F(Services, AHeadlessOneHasNoAddress) {
  Json made = make(services(), service("a", {{"clusterIP", "None"}, {"selector", {{"x", "y"}}}}));
  EXPECT_EQ(made["spec"]["clusterIP"], "None");
  EXPECT_EQ(made["spec"]["type"], "ClusterIP");
}

TEST_F(Services, PortsGetTheirDefaults) {
  Json made = make(services(),
                   service("a", {{"clusterIP", "None"}, {"ports", Json::array({{{"port", 80}}})}}));
  EXPECT_EQ(made["spec"]["ports"],
            Json::array({{{"port", 80}, {"protocol", "TCP"}, {"targetPort", 80}}}));
}

class Namespaces : public Case {
 protected:
  std::string self() const { return "/api/v1/namespaces/" + namespace_; }
};

TEST_F(Namespaces, ANewOneIsActive) {
  Json object = get(self()).body;
  EXPECT_EQ(object["status"], Json({{"phase", "Active"}}));
  EXPECT_EQ(object["spec"]["finalizers"], Json({"kubernetes"}));
}

TEST_F(Namespaces, ANameWithDotsIs422) {
  Reply refused = ask("POST", "/api/v1/namespaces", named("with.dots"));
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "metadata.name"));
}

TEST_F(Namespaces, TheDefaultOnesCanNotBeDeleted) {
  for (const char* name : {"default", "kube-system"})
    EXPECT_TRUE(
        is_failure(ask("DELETE", "/api/v1/namespaces/" + std::string(name)), 403, "Forbidden"));
}

TEST_F(Namespaces, OneThatIsBeingDeletedTakesNothingNew) {
  Json object = named("held");
  object["metadata"]["finalizers"] = {"lockstep.dev/hold"};
  make(secrets(), object);
  Reply removed = ask("DELETE", self());
  EXPECT_TRUE(removed.code == 200 || removed.code == 202) << removed.text;
  EXPECT_EQ(get(self()).body["status"]["phase"], "Terminating");
  Reply refused = ask("POST", secrets(), named("a"));
  ASSERT_TRUE(is_failure(refused, 403, "Forbidden"));
  EXPECT_TRUE(has_cause(refused, "NamespaceTerminating", "metadata.namespace"));
  // Existing objects can still be changed.
  EXPECT_TRUE(is_code(patch(secrets() + "/held", {{"metadata", {{"finalizers", nullptr}}}}), 200));
}

TEST_F(Namespaces, WithOneAllThatIsInItGoes) {
  NEEDS(server().empties_namespaces(), "the server has no namespace controller");
  make(secrets(), named("a"));
  make(pods(), pod("b"));
  EXPECT_TRUE(ask("DELETE", self()).code < 300);
  EXPECT_TRUE(eventually([&] { return get(self()).code == 404; }));
  EXPECT_EQ(get(secrets() + "/a").code, 404);
  EXPECT_EQ(get(pods() + "/b").code, 404);
}

class Nodes : public Case {
 protected:
  void TearDown() override {
    (void)ask("DELETE", "/api/v1/nodes/" + namespace_);
    Case::TearDown();
  }
  std::string self() const { return "/api/v1/nodes/" + namespace_; }
};

TEST_F(Nodes, TheirStatusIsWrittenApartFromTheirSpec) {
  make("/api/v1/nodes", named(namespace_, {{"zone", "x"}}));
  Json ready = {{"type", "Ready"}, {"status", "True"}, {"reason", "KubeletReady"}};
  Json status = {
      {"status",
       {{"capacity", {{"cpu", "2"}, {"memory", "1Gi"}}}, {"conditions", Json::array({ready})}}}};
  ASSERT_TRUE(is_code(patch(self() + "/status", status), 200));
  Json stored = get(self()).body;
  EXPECT_EQ(stored["status"]["capacity"], Json({{"cpu", "2"}, {"memory", "1Gi"}}));
  EXPECT_EQ(stored["status"]["conditions"][0]["type"], "Ready");
  ASSERT_TRUE(is_code(patch(self(), {{"spec", {{"unschedulable", true}}}}), 200));
  EXPECT_EQ(get(self()).body["spec"]["unschedulable"], true);
  EXPECT_EQ(get(self()).body["status"]["capacity"], stored["status"]["capacity"]);
}

}  // namespace
}  // namespace lockstep::conformance
