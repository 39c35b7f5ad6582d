#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "local/patch/field_managers.h"
#include "tests/local/patch/patch_cases.h"

namespace lockstep::local {

inline std::unique_ptr<SchemaNode> new_node(std::string type) {
  auto node = std::make_unique<SchemaNode>();
  node->type = std::move(type);
  return node;
}

// A custom resource with one field for each way to merge.
inline SchemaNode widget_schema() {
  SchemaNode root;
  root.type = "object";
  SchemaNode& spec = root.properties["spec"];
  spec.type = "object";
  for (const char* name : {"size", "color"}) spec.properties[name].type = "string";
  spec.properties["part"].type = "object";
  for (const char* name : {"x", "y"}) spec.properties["part"].properties[name].type = "integer";
  spec.properties["box"] = SchemaNode();
  spec.properties["box"].type = "object";
  spec.properties["box"].atomic_object = true;
  spec.properties["box"].preserve_unknown = true;
  spec.properties["map"].type = "object";
  spec.properties["map"].additional = new_node("string");
  spec.properties["any"].type = "object";
  spec.properties["any"].preserve_unknown = true;
  spec.properties["list"].type = "array";
  spec.properties["list"].items = new_node("string");
  spec.properties["set"].type = "array";
  spec.properties["set"].items = new_node("string");
  spec.properties["set"].list_type = ListType::kSet;
  SchemaNode& ports = spec.properties["ports"];
  ports.type = "array";
  ports.list_type = ListType::kMap;
  ports.list_keys = {"port", "protocol"};
  ports.items = new_node("object");
  ports.items->properties["port"].type = "integer";
  ports.items->properties["protocol"].type = "string";
  ports.items->properties["protocol"].default_value = "TCP";
  ports.items->properties["name"].type = "string";
  SchemaNode& status = root.properties["status"];
  status.type = "object";
  status.properties["phase"].type = "string";
  return root;
}

// An object that goes through a series of writes. Each write advances the time by a second.
class Written {
 public:
  explicit Written(SchemaNode schema = widget_schema()) : schema_(std::move(schema)) {}

  static Json widget(const Json& spec, const Json& metadata = Json::object()) {
    Json object = {{"apiVersion", "x.dev/v1"}, {"kind", "Widget"}, {"metadata", metadata}};
    object["metadata"]["name"] = "w";
    if (!spec.is_null()) object["spec"] = spec;
    return object;
  }

  // Returns "" on success, else the message of the conflict or error.
  std::string apply_object(const std::string& manager, const Json& intent, bool force = false) {
    ApplyResult result = apply_intent(schema_, live(), intent, writer(manager), force);
    if (auto* error = std::get_if<PatchError>(&result)) return error->message;
    if (auto* list = std::get_if<std::vector<ApplyConflict>>(&result))
      return conflict_message(*list);
    object = std::get<Json>(std::move(result));
    return "";
  }
  std::string apply(const std::string& manager, const std::string& spec, bool force = false) {
    return apply_object(manager, widget(json(spec)), force);
  }

  void update(const std::string& manager, Json next, const std::string& subresource = "") {
    FieldWriter by = writer(manager);
    by.subresource = subresource;
    record_update(schema_, live(), next, by);
    object = std::move(next);
  }
  // Updates `spec` as a client does that has read the object.
  void update_spec(const std::string& manager, const std::string& spec) {
    Json next = object.value_or(widget(nullptr));
    next["spec"] = json(spec);
    update(manager, std::move(next));
  }

  Json spec() const { return object->value("spec", Json()); }
  Json entries() const {
    return object ? object->at("metadata").value("managedFields", Json::array()) : Json::array();
  }
  // Returns the entry's field set; null if the manager has no such entry.
  Json fields(const std::string& manager, const std::string& operation) const {
    for (const Json& entry : entries()) {
      if (entry["manager"] == manager && entry["operation"] == operation) return entry["fieldsV1"];
    }
    return nullptr;
  }
  std::string applied(const std::string& manager) const {
    return dump_json(fields(manager, "Apply"));
  }
  std::string updated(const std::string& manager) const {
    return dump_json(fields(manager, "Update"));
  }

  std::optional<Json> object;

 private:
  const Json* live() const { return object ? &*object : nullptr; }
  FieldWriter writer(const std::string& manager) {
    return {manager, "x.dev/v1", "", WallTime(std::chrono::seconds(1'600'000'000 + ++writes_))};
  }

  SchemaNode schema_;
  int writes_ = 0;
};

}  // namespace lockstep::local
