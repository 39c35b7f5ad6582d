#include <gtest/gtest.h>

#include "local/schema/schema.h"

namespace lockstep::local {
namespace {

std::shared_ptr<const SchemaNode> compiled(const std::string& text) {
  const Result<Json> schema = parse_json(text);
  EXPECT_TRUE(schema.ok()) << schema.error().message;
  const auto result = compile_schema(*schema);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : nullptr;
}

// Returns a schema in which spec.value has the given schema.
std::shared_ptr<const SchemaNode> schema_of_value(const std::string& schema) {
  return compiled(R"({"type": "object", "properties": {"spec": {"type": "object",
    "properties": {"value": )" +
                  schema + "}}}}");
}

// Returns "reason | field | message" for each problem.
std::vector<std::string> problems(const SchemaNode& schema, const Json& object) {
  std::vector<std::string> lines;
  for (const SchemaProblem& problem : validate(schema, object)) {
    lines.push_back(problem.reason + " | " + problem.field + " | " + problem.message);
  }
  return lines;
}

struct Case {
  std::string schema;  // of spec.value
  std::string value;
  std::vector<std::string> problems;
};

TEST(Validate, SpeaksAsKubeApiserverDoes) {
  const Case cases[] = {
      {R"({"type":"integer"})", "1", {}},
      {R"({"type":"integer"})", "1.0", {}},
      {R"({"type":"integer"})",
       "\"x\"",
       {"FieldValueTypeInvalid | spec.value | Invalid value: \"string\": spec.value in body must "
        "be "
        "of type integer: \"string\""}},
      {R"({"type":"integer","format":"int64"})",
       "1.5",
       {"FieldValueTypeInvalid | spec.value | Invalid value: \"number\": spec.value in body must "
        "be of type integer: \"number\""}},
      {R"({"type":"object"})",
       "[]",
       {"FieldValueTypeInvalid | spec.value | Invalid value: \"array\": spec.value in body must be "
        "of type object: \"array\""}},
      {R"({"type":"string"})",
       "null",
       {"FieldValueTypeInvalid | spec.value | Invalid value: \"null\": spec.value in body must be "
        "of type string: \"null\""}},
      {R"({"type":"string","nullable":true})", "null", {}},
      {R"({"type":"integer","minimum":1})",
       "0",
       {"FieldValueInvalid | spec.value | Invalid value: 0: spec.value in body should be greater "
        "than or equal to 1"}},
      {R"({"type":"number","minimum":0,"exclusiveMinimum":true})",
       "0.0",
       {"FieldValueInvalid | spec.value | Invalid value: 0: spec.value in body should be greater "
        "than 0"}},
      {R"({"type":"integer","maximum":1000000000})",
       "1000000001",
       {"FieldValueInvalid | spec.value | Invalid value: 1000000001: spec.value in body should be "
        "less than or equal to 1000000000"}},
      {R"({"type":"string","enum":["a","b"]})",
       "\"c\"",
       {"FieldValueNotSupported | spec.value | Unsupported value: \"c\": supported values: \"a\", "
        "\"b\""}},
      {R"({"type":"string","maxLength":2})",
       "\"äöü\"",
       {"FieldValueTooLong | spec.value | Too long: may not be longer than 2"}},
      {R"({"type":"string","maxLength":3})", "\"äöü\"", {}},
      {R"({"type":"string","minLength":2})",
       "\"a\"",
       {"FieldValueInvalid | spec.value | Invalid value: \"a\": spec.value in body should be at "
        "least 2 chars long"}},
      {R"({"type":"string","pattern":"^a+$"})", "\"aaa\"", {}},
      {R"({"type":"string","pattern":"^a+$"})",
       "\"ab\"",
       {"FieldValueInvalid | spec.value | Invalid value: \"ab\": spec.value in body should match "
        "'^a+$'"}},
      {R"({"type":"array","items":{"type":"string"},"maxItems":1})",
       R"(["a","b"])",
       {"FieldValueTooMany | spec.value | Too many: 2: must have at most 1 items"}},
      {R"({"type":"array","items":{"type":"string"}})",
       R"(["a",1])",
       {"FieldValueTypeInvalid | spec.value[1] | Invalid value: \"integer\": spec.value[1] in body "
        "must be of type string: \"integer\""}},
      {R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"]})",
       "{}",
       {"FieldValueRequired | spec.value.a | Required value"}},
      {R"({"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
           "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}})",
       R"([{"k":"a"},{"k":"a"}])",
       {"FieldValueDuplicate | spec.value[1] | Duplicate value: {\"k\":\"a\"}"}},
      {R"({"type":"integer"})",
       "12345678901234567890",
       {"FieldValueTypeInvalid | spec.value | Invalid value: \"number\": spec.value in body must "
        "be of type integer: \"number\""}},
      {R"({"type":"number","multipleOf":0.5,"maximum":1000000000})",
       "1e30",
       {"FieldValueInvalid | spec.value | Invalid value: 1e+30: spec.value in body should be less "
        "than or equal to 1e+09"}},
      {R"({"type":"number","multipleOf":0.5})",
       "1234567.25",
       {"FieldValueInvalid | spec.value | Invalid value: 1.23456725e+06: spec.value in body should "
        "be a multiple of 0.5"}},
      {R"({"type":"integer","multipleOf":3})",
       "4",
       {"FieldValueInvalid | spec.value | Invalid value: 4: spec.value in body should be a "
        "multiple of 3"}},
      {R"({"type":"string","nullable":true,"enum":["a"]})",
       "null",
       {"FieldValueNotSupported | spec.value | Unsupported value: \"null\": supported values: "
        "\"a\""}},
      {R"({"type":"string","enum":["a"]})",
       "1",
       {"FieldValueTypeInvalid | spec.value | Invalid value: \"integer\": spec.value in body must "
        "be of type string: \"integer\"",
        "FieldValueNotSupported | spec.value | Unsupported value: 1: supported values: \"a\""}},
      {R"({"type":"object","additionalProperties":{"type":"string"},"minProperties":1})",
       "{}",
       {"FieldValueInvalid | spec.value | Invalid value: 0: spec.value in body should have at "
        "least 1 properties"}},
      {R"({"type":"string","format":"date-time"})", "\"2026-01-01T00:00:00.5+01:00\"", {}},
      {R"({"type":"string","format":"date-time"})",
       "\"2026-01-01\"",
       {"FieldValueTypeInvalid | spec.value | Invalid value: \"2026-01-01\": spec.value in body "
        "must be of type date-time: \"2026-01-01\""}},
      {R"({"type":"object","x-kubernetes-embedded-resource":true,
           "x-kubernetes-preserve-unknown-fields":true})",
       R"({"apiVersion":"a/b/c","more":1})",
       {"FieldValueInvalid | spec.value.apiVersion | Invalid value: \"a/b/c\": unexpected "
        "GroupVersion string: a/b/c",
        "FieldValueRequired | spec.value.kind | Required value: must not be empty"}},
      {R"({"x-kubernetes-int-or-string":true})", "\"50%\"", {}},
      {R"({"x-kubernetes-int-or-string":true})", "50", {}},
      {R"({"x-kubernetes-int-or-string":true})",
       "true",
       {"FieldValueTypeInvalid | spec.value | Invalid value: \"boolean\": spec.value in body must "
        "be of type integer,string: \"boolean\""}},
  };
  for (const Case& test : cases) {
    const auto schema = schema_of_value(test.schema);
    ASSERT_NE(schema, nullptr) << test.schema;
    EXPECT_EQ(problems(*schema, {{"spec", {{"value", *parse_json(test.value)}}}}), test.problems)
        << test.schema << " " << test.value;
  }
}

TEST(Validate, StopsAtTheNumberOfProblemsThatWasAskedFor) {
  const auto schema = schema_of_value(R"({"type":"array","items":{"type":"string"}})");
  EXPECT_EQ(validate(*schema, {{"spec", {{"value", std::vector<int>(1000)}}}}, 3).size(), 3u);
}

TEST(Validate, LeavesMetadataAndWhatKeepsUnknownFieldsAlone) {
  const auto schema = compiled(R"({"type":"object","properties":{
    "metadata":{"type":"object","properties":{"name":{"type":"string","maxLength":3}}},
    "any":{"x-kubernetes-preserve-unknown-fields":true}}})");
  EXPECT_EQ(problems(*schema, *parse_json(R"({"metadata":5,"any":[1,{"a":null}]})")),
            std::vector<std::string>());
}

TEST(Validate, AnswersAPatternThatWouldBacktrackAtOnce) {
  const auto schema = schema_of_value(R"({"type":"string","pattern":"^(a+)+$"})");
  EXPECT_EQ(validate(*schema, {{"spec", {{"value", std::string(100'000, 'a') + "b"}}}}).size(), 1u);
}

}  // namespace
}  // namespace lockstep::local
