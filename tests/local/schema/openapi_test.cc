#include "local/schema/openapi.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "common/api/schema.h"

namespace lockstep::local {
namespace {

constexpr char kJobDefinition[] = "dev.lockstep.v1alpha1.TrainingJob";
constexpr char kPodDefinition[] = "io.k8s.api.core.v1.Pod";

const OpenApiDocuments& documents() {
  static const OpenApiDocuments made = [] {
    const auto schema = compile_schema(training_job_schema());
    EXPECT_TRUE(schema.ok()) << schema.error().message;
    const std::vector<OpenApiResource> resources = {
        {.group = "lockstep.dev",
         .version = "v1alpha1",
         .plural = "trainingjobs",
         .kind = "TrainingJob",
         .subresources = {"status", "scale"},
         .schema = *schema},
        {.version = "v1", .plural = "pods", .kind = "Pod", .subresources = {"status"}},
        {.version = "v1", .plural = "nodes", .kind = "Node", .namespaced = false}};
    return make_openapi_documents(resources);
  }();
  return made;
}

Json parsed(const std::string& text) {
  const Result<Json> document = parse_json(text);
  EXPECT_TRUE(document.ok()) << document.error().message;
  return document.ok() ? *document : Json();
}

// Calls `check` for every {"$ref": ...} in the document.
void each_reference(const Json& value, const std::function<void(const std::string&)>& check) {
  if (value.is_object() && value.contains("$ref")) check(value.at("$ref"));
  if (!value.is_structured()) return;
  for (const Json& member : value) each_reference(member, check);
}

TEST(OpenApi, HasADefinitionForEveryReference) {
  std::vector<std::pair<std::string, std::string>> found;
  const Json v2 = parsed(documents().v2_json);
  each_reference(v2, [&](const std::string& to) {
    ASSERT_TRUE(to.starts_with("#/definitions/"));
    EXPECT_TRUE(v2.at("definitions").contains(to.substr(14))) << to;
  });
  for (const auto& [path, text] : documents().v3) {
    const Json v3 = parsed(text);
    each_reference(v3, [&](const std::string& to) {
      ASSERT_TRUE(to.starts_with("#/components/schemas/"));
      EXPECT_TRUE(v3.at("components").at("schemas").contains(to.substr(21))) << path << to;
    });
  }
}

TEST(OpenApi, SaysWhatThreeWayMergesNeedToKnowOfPods) {
  const Json v2 = parsed(documents().v2_json);
  const Json& container = v2.at("definitions").at("io.k8s.api.core.v1.Container").at("properties");
  EXPECT_EQ(container.at("ports").at("x-kubernetes-patch-merge-key"), "containerPort");
  EXPECT_EQ(container.at("ports").at("x-kubernetes-patch-strategy"), "merge");
  EXPECT_EQ(container.at("ports").at("x-kubernetes-list-map-keys"),
            Json({"containerPort", "protocol"}));
  const Json& pod = v2.at("definitions").at("io.k8s.api.core.v1.PodSpec").at("properties");
  EXPECT_EQ(pod.at("volumes").at("x-kubernetes-patch-strategy"), "merge,retainKeys");
  EXPECT_EQ(pod.at("tolerations").at("x-kubernetes-list-type"), "atomic");
}

TEST(OpenApi, DescribesEveryFieldOfTheJob) {
  const Json v2 = parsed(documents().v2_json);
  const std::function<void(const Json&, const std::string&)> walk = [&](const Json& schema,
                                                                        const std::string& path) {
    const Json* properties = find_member(schema, "properties");
    if (properties == nullptr) return;
    for (const auto& [name, property] : properties->items()) {
      EXPECT_FALSE(string_or(property, "description", "").empty()) << path << name;
      walk(property, path + name + ".");
    }
  };
  walk(v2.at("definitions").at(kJobDefinition), "");
}

TEST(OpenApi, NamesTheKindOfEachOperationAndTheParametersThatItTakes) {
  const Json job = parsed(documents().v3.at("apis/lockstep.dev/v1alpha1"));
  const std::string object =
      "/apis/lockstep.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{name}";
  const Json kind = {{"group", "lockstep.dev"}, {"version", "v1alpha1"}, {"kind", "TrainingJob"}};
  for (const std::string& path : {object, object + "/status", object + "/scale"}) {
    const Json& patch = job.at("paths").at(path).at("patch");
    EXPECT_EQ(patch.at("x-kubernetes-group-version-kind"), kind);
    std::vector<std::string> names;
    for (const Json& parameter : patch.at("parameters")) names.push_back(parameter.at("name"));
    EXPECT_EQ(names,
              (std::vector<std::string>{"dryRun", "fieldManager", "fieldValidation", "force"}));
  }
  EXPECT_TRUE(parsed(documents().v3.at("api/v1")).at("paths").contains("/api/v1/nodes/{name}"));
}

TEST(OpenApi, IndexNamesEachDocumentWithAHashOfItsText) {
  const Json index = parsed(documents().v3_index);
  ASSERT_EQ(index.at("paths").size(), 2u);
  const std::string url = index.at("paths").at("api/v1").at("serverRelativeURL");
  EXPECT_TRUE(url.starts_with("/openapi/v3/api/v1?hash="));
  EXPECT_EQ(url.size(), std::string("/openapi/v3/api/v1?hash=").size() + 64);
}

TEST(OpenApi, LeavesOutOfV2WhatOldClientsCannotRead) {
  const auto schema = compile_schema(parsed(R"({"type": "object", "properties": {
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"known": {"type": "string"}}},
    "null": {"type": "string", "nullable": true},
    "count": {"type": "integer", "default": 1},
    "mixed": {"x-kubernetes-int-or-string": true}}, "required": ["null", "count"]})"));
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  const OpenApiResource resource = {
      .group = "a.b", .version = "v1", .plural = "things", .kind = "Thing", .schema = *schema};
  const OpenApiDocuments made = make_openapi_documents({&resource, 1});
  const Json v2 = parsed(made.v2_json).at("definitions").at("b.a.v1.Thing");
  EXPECT_FALSE(v2.at("properties").at("any").contains("properties"));
  EXPECT_FALSE(v2.at("properties").at("null").contains("type"));
  EXPECT_FALSE(v2.at("properties").at("count").contains("default"));
  EXPECT_FALSE(v2.at("properties").at("mixed").contains("type"));
  EXPECT_EQ(v2.at("required"), Json({"count"}));
  const Json v3 =
      parsed(made.v3.at("apis/a.b/v1")).at("components").at("schemas").at("b.a.v1.Thing");
  EXPECT_TRUE(v3.at("properties").at("any").contains("properties"));
  EXPECT_EQ(v3.at("properties").at("null").at("nullable"), true);
  EXPECT_EQ(v3.at("properties").at("count").at("default"), 1);
}

// One field of a parsed message in protobuf's wire format. A message keeps its fields in order.
// Source: protobuf.dev, "Encoding".
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;     // of a varint or an 8-byte field
  std::string_view text;  // of a length-delimited field
};

uint64_t read_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  ADD_FAILURE() << "a varint that does not end";
  return 0;
}

std::vector<Field> read_message(std::string_view bytes) {
  std::vector<Field> fields;
  while (!bytes.empty()) {
    const uint64_t tag = read_varint(bytes);
    Field field{.number = tag >> 3};
    size_t size = 0;
    if ((tag & 7) == 0) {
      field.value = read_varint(bytes);
    } else if ((tag & 7) == 1) {
      size = 8;
    } else if ((tag & 7) == 2) {
      size = read_varint(bytes);
    } else {
      ADD_FAILURE() << "wire type " << (tag & 7);
      return fields;
    }
    if (size > bytes.size()) {
      ADD_FAILURE() << "a field that is longer than its message";
      return fields;
    }
    field.text = bytes.substr(0, size);
    bytes.remove_prefix(size);
    fields.push_back(field);
  }
  return fields;
}

std::vector<std::string_view> texts(std::string_view message, uint64_t number) {
  std::vector<std::string_view> found;
  for (const Field& field : read_message(message)) {
    if (field.number == number) found.push_back(field.text);
  }
  return found;
}

std::string_view text(std::string_view message, uint64_t number) {
  const auto found = texts(message, number);
  EXPECT_LE(found.size(), 1u) << number;
  return found.empty() ? std::string_view() : found.front();
}

// Returns the value of the NamedXxx message with this name in a list.
std::string_view named(std::string_view list, uint64_t field, std::string_view name) {
  for (const std::string_view each : texts(list, field)) {
    if (text(each, 1) == name) return text(each, 2);
  }
  ADD_FAILURE() << "nothing is named " << name;
  return {};
}

// Rebuilds a schema from its message. Field numbers are those of gnostic's
// openapiv2/OpenAPIv2.proto.
Json schema_from(std::string_view message) {
  Json schema = Json::object();
  if (const auto value = text(message, 1); !value.empty()) schema["$ref"] = value;
  if (const auto value = text(message, 2); !value.empty()) schema["format"] = value;
  if (const auto value = text(message, 4); !value.empty()) schema["description"] = value;
  if (const auto value = text(message, 5); !value.empty()) {
    schema["default"] = parsed(std::string(text(value, 2)));
  }
  if (const auto value = text(message, 13); !value.empty()) schema["pattern"] = value;
  for (const auto each : texts(message, 19)) schema["required"].push_back(each);
  for (const auto each : texts(message, 20)) {
    schema["enum"].push_back(parsed(std::string(text(each, 2))));
  }
  if (const auto value = text(message, 21); !value.empty()) {
    schema["additionalProperties"] = schema_from(text(value, 1));
  }
  if (const auto value = text(message, 22); !value.empty()) schema["type"] = text(value, 1);
  if (const auto value = text(message, 23); !value.empty()) {
    schema["items"] = schema_from(text(value, 1));
  }
  for (const auto each : texts(text(message, 25), 1)) {
    schema["properties"][std::string(text(each, 1))] = schema_from(text(each, 2));
  }
  for (const auto each : texts(message, 31)) {
    schema[std::string(text(each, 1))] = parsed(std::string(text(text(each, 2), 2)));
  }
  for (const Field& field : read_message(message)) {
    static const std::map<uint64_t, std::string> kIntegers = {
        {11, "maxLength"}, {12, "minLength"},     {14, "maxItems"},
        {15, "minItems"},  {17, "maxProperties"}, {18, "minProperties"}};
    static const std::map<uint64_t, std::string> kReals = {
        {6, "multipleOf"}, {7, "maximum"}, {9, "minimum"}};
    if (kIntegers.contains(field.number)) schema[kIntegers.at(field.number)] = field.value;
    if (kReals.contains(field.number)) {
      double value = 0;
      std::memcpy(&value, field.text.data(), sizeof value);
      schema[kReals.at(field.number)] = value;
    }
    if (field.number == 8) schema["exclusiveMaximum"] = field.value == 1;
    if (field.number == 10) schema["exclusiveMinimum"] = field.value == 1;
  }
  return schema;
}

// Removes default values, which proto3 does not write.
Json without_defaults(Json schema) {
  if (schema.is_object()) {
    for (const char* name : {"minimum", "maximum", "minLength", "minItems"}) {
      const auto it = schema.find(name);
      if (it != schema.end() && *it == 0) schema.erase(it);
    }
    if (schema.contains("items") && schema["items"].empty()) schema["items"] = Json::object();
  }
  if (schema.is_structured()) {
    for (Json& member : schema) member = without_defaults(std::move(member));
  }
  return schema;
}

TEST(OpenApi, ProtobufSaysTheSameAsJson) {
  const std::string& bytes = documents().v2_protobuf;
  EXPECT_EQ(text(bytes, 1), "2.0");
  const Json definitions = parsed(documents().v2_json).at("definitions");
  EXPECT_EQ(texts(text(bytes, 9), 1).size(), definitions.size());
  for (const auto& [name, definition] : definitions.items()) {
    EXPECT_EQ(schema_from(named(text(bytes, 9), 1, name)), without_defaults(definition)) << name;
  }
  EXPECT_TRUE(definitions.contains(kPodDefinition));
}

TEST(OpenApi, ProtobufHasTheQueryParametersOfPatches) {
  const std::string_view path =
      named(text(documents().v2_protobuf, 8), 2, "/api/v1/namespaces/{namespace}/pods/{name}");
  const std::string_view patch = text(path, 8);
  EXPECT_EQ(parsed(std::string(text(named(patch, 13, "x-kubernetes-group-version-kind"), 2))),
            Json({{"group", ""}, {"version", "v1"}, {"kind", "Pod"}}));
  std::vector<std::string_view> names;  // of query parameters, found as kubectl finds them
  for (const std::string_view item : texts(patch, 8)) {
    const std::string_view query = text(text(text(item, 1), 2), 3);
    if (!query.empty()) names.push_back(text(query, 4));
  }
  EXPECT_EQ(names,
            (std::vector<std::string_view>{"dryRun", "fieldManager", "fieldValidation", "force"}));
}

}  // namespace
}  // namespace lockstep::local
