#include <gtest/gtest.h>

#include "common/api/schema.h"
#include "local/schema/schema.h"

namespace lockstep::local {
namespace {

// Returns the error in the schema of a member "a"; "" if there is none.
std::string wrong_with(const std::string& schema) {
  const Result<Json> parsed = parse_json(R"({"type":"object","properties":{"a":)" + schema + "}}");
  EXPECT_TRUE(parsed.ok()) << schema;
  const auto compiled = compile_schema(*parsed);
  return compiled.ok() ? "" : compiled.error().message;
}

TEST(CompileSchema, TakesTheTrainingJobs) {
  const auto schema = compile_schema(training_job_schema());
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  const SchemaNode* nodes = (*schema)->member("spec")->member("nodes");
  ASSERT_NE(nodes, nullptr);
  EXPECT_EQ(nodes->type, "integer");
  EXPECT_EQ(nodes->default_value, Json(1));
  const SchemaNode* conditions = (*schema)->member("status")->member("conditions");
  EXPECT_EQ(conditions->list_type, ListType::kMap);
  EXPECT_EQ(conditions->list_keys, std::vector<std::string>{"type"});
}

TEST(CompileSchema, TakesWhatKubernetesTakes) {
  for (const char* schema : {
           R"({"x-kubernetes-preserve-unknown-fields":true})",
           R"({"type":"object","additionalProperties":true})",
           R"({"type":"object","additionalProperties":false})",
           R"({"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true})",
           R"({"type":"string","x-kubernetes-int-or-string":true})",
           R"({"type":"string","default":null})",
           R"({"type":"string","x-kubernetes-validations":[{"rule":"self != ''"}]})",
           R"({"type":"object","required":["b"]})",
           R"({"type":"string","title":"t","example":"e","pattern":null})",
           R"({"type":"string","enum":[]})",
       }) {
    EXPECT_EQ(wrong_with(schema), "") << schema;
  }
}

TEST(CompileSchema, RefusesWhatIsNotStructuralInTheWordsOfKubeApiserver) {
  const std::string at = "openAPIV3Schema.properties[a]";
  const std::pair<const char*, std::string> cases[] = {
      {"{}", at + ".type: Required value: must not be empty for specified object fields"},
      {R"({"type":"array","items":{}})",
       at + ".items.type: Required value: must not be empty for specified array items"},
      {R"({"type":"array"})", at + ".items: Required value: must be specified"},
      {R"({"type":"foo"})",
       at + ".type: Unsupported value: \"foo\": supported values: \"array\", \"boolean\", "
            "\"integer\", \"number\", \"object\", \"string\""},
      {R"({"type":"object","properties":{},"x-kubernetes-embedded-resource":true})",
       at + ".properties: Required value: must not be empty if x-kubernetes-embedded-resource is "
            "true without x-kubernetes-preserve-unknown-fields"},
      {R"({"type":"object","properties":{"b":{"type":"string"}},
           "additionalProperties":{"type":"string"}})",
       at + ".additionalProperties: Forbidden: additionalProperties and properties are mutual "
            "exclusive"},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"string"}})",
       at + ".uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime "
            "complexity becomes quadratic"},
      {R"({"$ref":"#/x"})", at + ".$ref: Forbidden: $ref is not supported"},
      {R"({"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
           "items":{"type":"object","properties":{"k":{"type":"string"}}}})",
       at + ".items.properties[k].default: Required value: this property is in "
            "x-kubernetes-list-map-keys, so it must have a default or be a required property"},
      {R"({"type":"array","x-kubernetes-list-type":"map","items":{"type":"object"}})",
       at + ".x-kubernetes-list-map-keys: Required value: must not be empty if "
            "x-kubernetes-list-type is map"},
      {R"({"type":"string","x-kubernetes-list-type":"set"})",
       at + ".type: Invalid value: \"string\": must be array if x-kubernetes-list-type is "
            "specified"},
      {R"({"type":"object","default":{"x":1}})",
       at + ".default: Invalid value: {\"x\":1}: must not have unknown fields"},
      {R"({"type":"object","x-kubernetes-preserve-unknown-fields":false})",
       at + ".x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or "
            "undefined"},
      {R"({"type":"object","oneOf":[{"required":["x"]}]})",
       at + ".oneOf: Forbidden: this server does not support it"},
      {R"({"type":"object","surprise":1})",
       at + ".surprise: Forbidden: this server does not know this keyword"},
      {R"({"type":"string","minLength":-1})", at + ".minLength: must be an integer of at least 0"},
  };
  for (const auto& [schema, words] : cases) EXPECT_EQ(wrong_with(schema), words) << schema;
}

TEST(CompileSchema, ChecksDefaultsAgainstTheirOwnSchema) {
  EXPECT_NE(wrong_with(R"({"type":"string","default":5})"), "");
  EXPECT_NE(wrong_with(R"({"type":"string","default":{}})"), "");
  EXPECT_NE(wrong_with(R"({"type":"string","default":"x","maxLength":0})"), "");
  EXPECT_EQ(wrong_with(R"({"type":"string","default":"x"})"), "");
}

TEST(CompileSchema, RefusesPatternsThatAreNoneOrTooLarge) {
  EXPECT_NE(wrong_with(R"x({"type":"string","pattern":"("})x"), "");
  EXPECT_NE(wrong_with(R"({"type":"string","pattern":")" + std::string(5000, 'a') + "\"}"), "");
  EXPECT_NE(wrong_with(R"x({"type":"string","pattern":"((a{100}){100}){100}"})x"), "");
}

TEST(CompileSchema, SaysWhatTheRootHasToBe) {
  const std::pair<const char*, const char*> cases[] = {
      {"5", "openAPIV3Schema: must be a schema object"},
      {"{}", "openAPIV3Schema.type: Required value: must not be empty at the root"},
      {R"({"type":"string"})",
       "openAPIV3Schema.type: Invalid value: \"string\": must be object at the root"},
      {R"({"type":"object","nullable":true})",
       "openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root"},
      {R"({"type":"object","properties":{"metadata":{"type":"object",
           "properties":{"labels":{"type":"object"}}}}})",
       "openAPIV3Schema.properties[metadata]: Forbidden: must not specify anything other than "
       "name and generateName, but metadata is implicitly specified"},
  };
  for (const auto& [schema, words] : cases) {
    const auto compiled = compile_schema(*parse_json(schema));
    ASSERT_FALSE(compiled.ok()) << schema;
    EXPECT_EQ(compiled.error().message, words);
  }
}

TEST(CompileSchema, BoundsDepthAndSize) {
  Json deep = {{"type", "string"}};
  for (int i = 0; i < 60; ++i) deep = {{"type", "array"}, {"items", std::move(deep)}};
  const auto too_deep = compile_schema({{"type", "object"}, {"properties", {{"a", deep}}}});
  ASSERT_FALSE(too_deep.ok());
  EXPECT_NE(too_deep.error().message.find("nested deeper than 48 levels"), std::string::npos);
  Json wide = {{"type", "object"}};
  for (int i = 0; i < 20'001; ++i) wide["properties"][std::to_string(i)] = {{"type", "string"}};
  const auto too_wide = compile_schema(wide);
  ASSERT_FALSE(too_wide.ok());
  EXPECT_NE(too_wide.error().message.find("more than 20000 nodes"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::local
