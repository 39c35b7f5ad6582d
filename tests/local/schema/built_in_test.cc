#include <gtest/gtest.h>

#include "local/schema/built_in_types.h"
#include "local/schema/schema.h"

namespace lockstep::local {
namespace {

const SchemaNode* at(const SchemaNode& root, std::initializer_list<std::string_view> path) {
  const SchemaNode* node = &root;
  for (const std::string_view name : path) {
    node = name == "[]" ? node->items.get() : node->member(name);
    if (node == nullptr) return nullptr;
  }
  return node;
}

struct Case {
  const char *api_version, *kind;
  std::initializer_list<std::string_view> path;
  const char* merge_key;  // for strategic patches; null: replaced as a whole
  std::vector<std::string> list_keys;
};

TEST(BuiltInSchema, KnowsHowListsOfKubernetesMerge) {
  const Case cases[] = {
      {"v1", "Pod", {"spec", "containers"}, "name", {"name"}},
      {"v1", "Pod", {"spec", "initContainers", "[]", "env"}, "name", {"name"}},
      {"v1", "Pod", {"spec", "containers", "[]", "volumeMounts"}, "mountPath", {"mountPath"}},
      {"v1",
       "Pod",
       {"spec", "containers", "[]", "ports"},
       "containerPort",
       {"containerPort", "protocol"}},
      {"v1", "Pod", {"spec", "volumes"}, "name", {"name"}},
      {"v1", "Pod", {"spec", "tolerations"}, nullptr, {}},
      {"v1", "Pod", {"spec", "containers", "[]", "args"}, nullptr, {}},
      {"v1", "Pod", {"status", "conditions"}, "type", {"type"}},
      {"v1", "Pod", {"metadata", "ownerReferences"}, "uid", {"uid"}},
      {"v1", "Service", {"spec", "ports"}, "port", {"port", "protocol"}},
      {"v1", "Node", {"status", "addresses"}, "type", {"type"}},
      {"v1", "Node", {"spec", "taints"}, nullptr, {}},
  };
  for (const Case& test : cases) {
    const auto schema = built_in_schema(test.api_version, test.kind);
    const SchemaNode* list = at(*schema, test.path);
    ASSERT_NE(list, nullptr) << test.kind;
    EXPECT_EQ(list->merges, test.merge_key != nullptr);
    EXPECT_EQ(list->merge_key, test.merge_key == nullptr ? "" : test.merge_key);
    EXPECT_EQ(list->list_keys, test.list_keys);
    EXPECT_EQ(list->list_type, test.list_keys.empty() ? ListType::kAtomic : ListType::kMap);
  }
  const auto pod = built_in_schema("v1", "Pod");
  EXPECT_EQ(at(*pod, {"metadata", "finalizers"})->list_type, ListType::kSet);
  EXPECT_TRUE(at(*pod, {"metadata", "finalizers"})->merges);
  EXPECT_TRUE(at(*pod, {"spec", "nodeSelector"})->atomic_object);
  EXPECT_EQ(at(*pod, {"spec", "containers", "[]", "ports", "[]", "protocol"})->default_value,
            Json("TCP"));
}

TEST(BuiltInSchema, KeepsUnknownFieldsAndKindsWithoutTables) {
  const auto pod = built_in_schema("v1", "Pod");
  Json object = *parse_json(R"({"spec":{"new":1,"containers":[{"newer":null}]}})");
  EXPECT_TRUE(prune(*pod, object).empty());
  const auto other = built_in_schema("example.com/v1", "Thing");
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(other->preserve_unknown);
  EXPECT_NE(other->member("metadata"), nullptr);
}

TEST(BuiltInSchema, IsMadeOnce) {
  EXPECT_EQ(built_in_schema("v1", "Pod"), built_in_schema("v1", "Pod"));
  EXPECT_NE(built_in_schema("v1", "Event"), built_in_schema("events.k8s.io/v1", "Event"));
}

TEST(BuiltInTypes, ReferToTypesThatAreThere) {
  const std::vector<std::string_view> scalars = {"string",      "bytes",  "bool", "int32",
                                                 "int64",       "double", "time", "quantity",
                                                 "intOrString", "any"};
  for (const std::span<const TypeRow> rows : {pod_types(), other_types()}) {
    for (const TypeRow& row : rows) {
      for (const TypeField& field : fields_of(row).fields) {
        std::string_view type = field.type;
        if (type.starts_with("map[")) type = type.substr(4, type.size() - 5);
        const bool is_scalar = std::find(scalars.begin(), scalars.end(), type) != scalars.end();
        EXPECT_TRUE(is_scalar || find_type(row.package, type) != nullptr)
            << row.name << "." << field.name << ": " << type;
        for (const std::string_view key : field.list_keys) {
          const TypeRow* item = find_type(row.package, type);
          ASSERT_NE(item, nullptr) << row.name << "." << field.name;
          const auto members = fields_of(*item).fields;
          EXPECT_TRUE(std::any_of(members.begin(), members.end(),
                                  [&](const TypeField& member) { return member.name == key; }))
              << row.name << "." << field.name << " has no " << key;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::local
