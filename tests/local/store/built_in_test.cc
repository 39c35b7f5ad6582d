// Tests the rules for single built-in kinds.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

constexpr char kConfigs[] = "/api/v1/namespaces/default/configmaps";
constexpr char kServices[] = "/api/v1/namespaces/default/services";

Json named(const std::string& name, Json object = Json::object()) {
  object["metadata"]["name"] = name;
  return object;
}

TEST_F(ApiTest, AServiceGetsAnAddressAndKeepsIt) {
  Json made = make(kServices, named("s", {{"spec", {{"ports", {{{"port", 80}}}}}}}));
  std::string address = made["spec"]["clusterIP"];
  EXPECT_TRUE(address.starts_with("10.")) << address;
  EXPECT_EQ(made["spec"]["type"], "ClusterIP");
  EXPECT_EQ(made["spec"]["ports"][0]["protocol"], "TCP");
  EXPECT_EQ(made["spec"]["ports"][0]["targetPort"], 80);
  Json update = named("s", {{"spec", {{"ports", {{{"port", 81}}}}}}});
  EXPECT_EQ(ask("PUT", std::string(kServices) + "/s", update).body["spec"]["clusterIP"], address);
  update["spec"]["clusterIP"] = "10.0.0.1";
  EXPECT_EQ(ask("PUT", std::string(kServices) + "/s", update).code, 422);
  Json headless = make(kServices, named("h", {{"spec", {{"clusterIP", "None"}}}}));
  EXPECT_EQ(headless["spec"]["clusterIP"], "None");
  EXPECT_EQ(ask("POST", kServices, named("portless")).code, 422);
  EXPECT_EQ(ask("POST", kServices, named("s.dot", {{"spec", {{"clusterIP", "None"}}}})).code, 422);
}

TEST_F(ApiTest, ImmutableDataStays) {
  make(kConfigs, named("c", {{"data", {{"a", "1"}}}, {"immutable", true}}));
  const std::string target = std::string(kConfigs) + "/c";
  EXPECT_EQ(ask("PATCH", target, {{"data", {{"a", "2"}}}}).code, 422);
  EXPECT_EQ(ask("PATCH", target, {{"immutable", false}}).code, 422);
  EXPECT_EQ(ask("PATCH", target, {{"metadata", {{"labels", {{"x", "y"}}}}}}).code, 200);
  make(kSecrets, named("s", {{"type", "example.com/kind"}}));
  EXPECT_EQ(ask("PATCH", std::string(kSecrets) + "/s", {{"type", "Opaque"}}).code, 422);
}

TEST_F(ApiTest, DataIsChecked) {
  EXPECT_EQ(ask("POST", kConfigs, named("c", {{"data", {{"a", 1}}}})).code, 400);
  EXPECT_EQ(ask("POST", kConfigs, named("c", {{"data", {{"a b", "1"}}}})).code, 422);
  EXPECT_EQ(ask("POST", kSecrets, named("s", {{"data", {{"a", "no base64!"}}}})).code, 400);
  std::string large(1100 * 1024, 'x');
  EXPECT_EQ(ask("POST", kConfigs, named("c", {{"data", {{"a", large}}}})).code, 422);
  EXPECT_EQ(make(kSecrets, named("s"))["type"], "Opaque");
}

TEST_F(ApiTest, APodNeedsNamedContainers) {
  EXPECT_EQ(ask("POST", kPods, named("p")).code, 422);
  EXPECT_EQ(ask("POST", kPods, named("p", {{"spec", {{"containers", {Json::object()}}}}})).code,
            422);
  EXPECT_EQ(ask("POST", kPods, named("p", {{"spec", 7}})).code, 400);
}

TEST_F(ApiTest, LabelsAndAnnotationsAreChecked) {
  auto code = [&](const char* field, const std::string& key, const std::string& value) {
    Json object = named("c");
    object["metadata"][field] = {{key, value}};
    return ask("POST", std::string(kConfigs) + "?dryRun=All", object).code;
  };
  EXPECT_EQ(code("labels", "example.com/a", "b"), 201);
  EXPECT_EQ(code("labels", "a", ""), 201);
  EXPECT_EQ(code("labels", "a", "no spaces"), 422);
  EXPECT_EQ(code("labels", "-a", "b"), 422);
  EXPECT_EQ(code("labels", "a", std::string(64, 'x')), 422);
  EXPECT_EQ(code("annotations", "a", "any text at all"), 201);
  EXPECT_EQ(code("annotations", "a/b/c", "x"), 422);
  EXPECT_EQ(code("annotations", "a", std::string(300 * 1024, 'x')), 422);
}

TEST_F(ApiTest, GeneratedNamesAreCut) {
  Json made = make(kConfigs, {{"metadata", {{"generateName", std::string(100, 'g')}}}});
  EXPECT_EQ(made["metadata"]["name"].get<std::string>().size(), 63u);
}

}  // namespace
}  // namespace lockstep::local
