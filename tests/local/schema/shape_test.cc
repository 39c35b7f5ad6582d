#include <gtest/gtest.h>

#include "local/schema/schema.h"

namespace lockstep::local {
namespace {

std::shared_ptr<const SchemaNode> compiled(const std::string& properties) {
  const auto result =
      compile_schema(*parse_json(R"({"type":"object","properties":)" + properties + "}"));
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : nullptr;
}

TEST(Prune, RemovesUnknownFieldsAndNamesTheirPaths) {
  const auto schema = compiled(R"({"spec":{"type":"object","properties":{
    "known":{"type":"string"},
    "list":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}},
    "map":{"type":"object","additionalProperties":{"type":"object","properties":{}}}}}})");
  Json object = *parse_json(R"({"apiVersion":"v1","kind":"K","metadata":{"any":1},"extra":1,
    "spec":{"known":"x","foo":1,"list":[{},{"a":"x"},{"bar":{"deep":1}}],"map":{"m":{"n":1}}}})");
  EXPECT_EQ(prune(*schema, object),
            (std::vector<std::string>{"extra", "spec.foo", "spec.list[2].bar", "spec.map.m.n"}));
  EXPECT_EQ(object, *parse_json(R"({"apiVersion":"v1","kind":"K","metadata":{"any":1},
    "spec":{"known":"x","list":[{},{"a":"x"},{}],"map":{"m":{}}}})"));
}

TEST(Prune, KeepsUnknownFieldsWhereTheSchemaDoesButPrunesKnownOnes) {
  const auto schema = compiled(R"({"spec":{"type":"object",
    "x-kubernetes-preserve-unknown-fields":true,
    "properties":{"known":{"type":"object","properties":{}}}}})");
  Json object = *parse_json(R"({"spec":{"foo":{"bar":1},"known":{"gone":1}}})");
  EXPECT_EQ(prune(*schema, object), std::vector<std::string>{"spec.known.gone"});
  EXPECT_EQ(object, *parse_json(R"({"spec":{"foo":{"bar":1},"known":{}}})"));
}

TEST(Prune, KeepsTypeAndMetadataOfEmbeddedResources) {
  const auto schema = compiled(R"({"spec":{"type":"object","x-kubernetes-embedded-resource":true,
    "properties":{"a":{"type":"string"}}}})");
  Json object = *parse_json(R"({"spec":{"apiVersion":"v1","kind":"K","b":1,
    "metadata":{"name":"x","foo":1}}})");
  EXPECT_EQ(prune(*schema, object), (std::vector<std::string>{"spec.b", "spec.metadata.foo"}));
  EXPECT_EQ(object,
            *parse_json(R"({"spec":{"apiVersion":"v1","kind":"K","metadata":{"name":"x"}}})"));
}

struct Case {
  const char *properties, *before, *after;
};

// Expected results are those of kube-apiserver 1.20.2.
TEST(Defaults, AreFilledInFromTheOutsideIn) {
  constexpr char kNested[] = R"({"def":{"type":"object","default":{"a":1},"properties":{
    "a":{"type":"integer"},"b":{"type":"integer","default":2},
    "c":{"type":"object","properties":{"d":{"type":"string","default":"x"}}}}}})";
  constexpr char kList[] = R"({"l":{"type":"array","items":{"type":"object","properties":{
    "d":{"type":"string","default":"x"}}}}})";
  constexpr char kMap[] = R"({"m":{"type":"object","additionalProperties":{"type":"object",
    "properties":{"d":{"type":"string","default":"x"}}}}})";
  constexpr char kNull[] = R"({"n":{"type":"string","nullable":true,"default":"x"},
    "s":{"type":"string"},"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true}})";
  const Case cases[] = {
      {kNested, "{}", R"({"def":{"a":1,"b":2}})"},
      {kNested, R"({"def":{}})", R"({"def":{"b":2}})"},
      {kNested, R"({"def":null})", R"({"def":{"a":1,"b":2}})"},
      {kNested, R"({"def":{"a":null,"b":null}})", R"({"def":{"b":2}})"},
      {kNested, R"({"def":{"c":{}}})", R"({"def":{"b":2,"c":{"d":"x"}}})"},
      {kNested, R"({"def":5})", R"({"def":5})"},
      {kList, R"({"l":[{},{"d":null},{"d":"y"}]})", R"({"l":[{"d":"x"},{"d":"x"},{"d":"y"}]})"},
      {kList, R"({"l":[null]})", R"({"l":[null]})"},
      {kMap, R"({"m":{"a":{},"b":null}})", R"({"m":{"a":{"d":"x"}}})"},
      {kNull, R"({"n":null,"s":null,"any":{"u":null}})", R"({"any":{"u":null},"n":null})"},
      {kNull, "{}", R"({"n":"x"})"},
  };
  for (const Case& test : cases) {
    const auto schema = compiled(test.properties);
    Json object = *parse_json(test.before);
    apply_defaults(*schema, object);
    EXPECT_EQ(object, *parse_json(test.after)) << test.properties << test.before;
  }
}

}  // namespace
}  // namespace lockstep::local
