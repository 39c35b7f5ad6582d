// The definitions of custom resources.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

class Definitions : public WidgetCase {
 protected:
  // Returns a definition of another kind, which is removed at the case's end.
  Json definition(const Json& spec_schema = {{"type", "object"}}) {
    return definition_of(namespace_ + "." + group(), "Gadget", spec_schema);
  }
  std::string collection() const { return path(namespace_ + "." + group() + "/v1", "gadgets"); }
  Json gadget(const std::string& name, const Json& spec) const {
    return {{"apiVersion", namespace_ + "." + group() + "/v1"},
            {"kind", "Gadget"},
            {"metadata", {{"name", name}}},
            {"spec", spec}};
  }
  std::string self() const {
    return std::string(kDefinitions) + "/gadgets." + namespace_ + "." + group();
  }
  void TearDown() override {
    (void)ask("DELETE", self());
    Case::TearDown();
  }
};

TEST_F(Definitions, ANewDefinitionIsEstablishedAndItsObjectsAreServed) {
  ASSERT_NO_FATAL_FAILURE(install_definition(definition()));
  Json stored = get(self()).body;
  EXPECT_EQ(stored["status"]["acceptedNames"]["plural"], "gadgets");
  EXPECT_EQ(stored["status"]["acceptedNames"]["listKind"], "GadgetList");
  EXPECT_EQ(stored["status"]["storedVersions"], Json({"v1"}));
  make(collection(), gadget("a", Json::object()));
  EXPECT_EQ(names(get(collection())), std::vector<std::string>{"a"});
}

TEST_F(Definitions, ItAppearsInDiscovery) {
  ASSERT_NO_FATAL_FAILURE(install_definition(definition()));
  const std::string version = namespace_ + "." + group() + "/v1";
  EXPECT_TRUE(eventually([&] { return server().serves(version, "gadgets"); }));
  EXPECT_TRUE(server().serves(version, "gadgets/status"));
  EXPECT_TRUE(server().serves(version, "gadgets/scale"));
  Reply one = get("/apis/" + namespace_ + "." + group());
  ASSERT_TRUE(is_code(one, 200));
  EXPECT_EQ(one.body["preferredVersion"]["groupVersion"], version);
}

TEST_F(Definitions, TheNameMustBePluralAndGroup) {
  Json wrong = definition();
  wrong["metadata"]["name"] = "things." + group();
  Reply refused = ask("POST", kDefinitions, wrong);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "metadata.name"));
}

TEST_F(Definitions, ASchemaThatIsNotStructuralIs422) {
  Json schema = {{"type", "object"}, {"properties", {{"x", {{"description", "of no type"}}}}}};
  Reply refused = ask("POST", kDefinitions, definition(schema));
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueRequired",
                        "spec.validation.openAPIV3Schema.properties[spec].properties[x].type") ||
              has_cause(refused, "FieldValueRequired",
                        "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[x]"
                        ".type"))
      << refused.text;
}

TEST_F(Definitions, AVersionWithoutASchemaIs422) {
  Json wrong = definition();
  wrong["spec"]["versions"][0].erase("schema");
  EXPECT_TRUE(is_failure(ask("POST", kDefinitions, wrong), 422, "Invalid"));
}

TEST_F(Definitions, AnotherSchemaIsUsedForWhatIsWrittenAfterwards) {
  Json schema = {{"type", "object"}, {"properties", {{"x", {{"type", "string"}}}}}};
  ASSERT_NO_FATAL_FAILURE(install_definition(definition(schema)));
  Json made = make(collection(), gadget("a", {{"x", "1"}, {"y", "2"}}));
  EXPECT_EQ(made["spec"], Json({{"x", "1"}}));
  Json stored = get(self()).body;
  stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["y"] = {{"type", "string"}};
  ASSERT_TRUE(is_code(ask("PUT", self(), stored), 200));
  int number = 0;
  EXPECT_TRUE(eventually([&] {
    Json again =
        make(collection(), gadget("b" + std::to_string(++number), {{"x", "1"}, {"y", "2"}}));
    return again["spec"] == Json({{"x", "1"}, {"y", "2"}});
  }));
}

TEST_F(Definitions, IntOrStringIsEither) {
  Json schema = {{"type", "object"},
                 {"properties", {{"port", {{"x-kubernetes-int-or-string", true}}}}}};
  ASSERT_NO_FATAL_FAILURE(install_definition(definition(schema)));
  EXPECT_EQ(make(collection(), gadget("a", {{"port", 80}}))["spec"]["port"], 80);
  EXPECT_EQ(make(collection(), gadget("b", {{"port", "http"}}))["spec"]["port"], "http");
  EXPECT_TRUE(is_failure(ask("POST", collection(), gadget("c", {{"port", true}})), 422, "Invalid"));
}

TEST_F(Definitions, AScopeOrNameOfAKindCanNotChange) {
  ASSERT_NO_FATAL_FAILURE(install_definition(definition()));
  Json stored = get(self()).body;
  stored["spec"]["scope"] = "Cluster";
  EXPECT_TRUE(is_failure(ask("PUT", self(), stored), 422, "Invalid"));
}

TEST_F(Definitions, WithTheDefinitionItsObjectsGo) {
  ASSERT_NO_FATAL_FAILURE(install_definition(definition()));
  make(collection(), gadget("a", Json::object()));
  ASSERT_TRUE(is_code(ask("DELETE", self()), 200));
  EXPECT_TRUE(eventually([&] { return get(self()).code == 404; }));
  EXPECT_TRUE(eventually([&] { return get(collection()).code == 404; }));
  ASSERT_NO_FATAL_FAILURE(install_definition(definition()));
  EXPECT_EQ(names(get(collection())), std::vector<std::string>{});
}

// Servers before 1.25 ignore the rules; from 1.30 on they compile them and limit their cost. Those
// between do not know optionalOldSelf, which our rules have.
TEST_F(Definitions, OursAreAcceptedWithRulesAndWithout) {
  const int minor = server().minor_version();
  for (const char* folder : {"crds", "crds-cel"}) {
    if (folder == std::string("crds-cel") && minor >= 25 && minor < 30) continue;
    Reply made = ask("POST", std::string(kDefinitions) + "?dryRun=All", our_definition(folder));
    EXPECT_TRUE(made.code == 201 || made.code == 409) << folder << ": " << made.text;
  }
}

}  // namespace
}  // namespace lockstep::conformance
