#include "common/api/schema.h"

#include "common/api/status_fields.h"
#include "common/api/training_job_fields.h"

namespace lockstep {
namespace {

template <class T>
struct ItemOf {
  using Type = T;
};
template <class T>
struct ItemOf<std::vector<T>> {
  using Type = T;
};
template <class T>
struct ItemOf<std::optional<T>> {
  using Type = T;
};

template <class T>
std::string_view schema_type() {
  if constexpr (std::same_as<T, bool>) return "boolean";
  if constexpr (std::same_as<T, int64_t>) return "integer";
  if constexpr (std::same_as<T, double>) return "number";
  if constexpr (std::same_as<T, std::string>) return "string";
  if constexpr (codec::IsVector<T>::value) return "array";
  return "object";
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> list;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    list.emplace_back(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return list;
}

// Writes 1000000000 rather than 1e9.
Json number(double value) {
  if (value == std::floor(value) && std::abs(value) <= kIntegerMax) {
    return static_cast<int64_t>(value);
  }
  return value;
}

bool has_minimum(const Field& field) {
  return field.minimum != -kIntegerMax;
}
bool has_maximum(const Field& field) {
  return field.maximum != kIntegerMax;
}

std::string range_text(const Field& field) {
  if (!has_minimum(field) && !has_maximum(field)) return "";
  const std::string low = dump_json(number(field.minimum));
  const std::string high = dump_json(number(field.maximum));
  if (field.above_minimum) return ", above " + low + (has_maximum(field) ? " to " + high : "");
  return has_maximum(field) ? ", " + low + " to " + high : ", from " + low;
}

std::string choices_text(const Field& field) {
  std::string text;
  for (const std::string& choice : words(field.choices)) {
    text += (text.empty() ? ": " : ", ") + choice;
  }
  return text;
}

// Adds the bounds of a scalar, or of a list's items.
template <class T>
void add_bounds(const Field& field, Json& schema) {
  if constexpr (std::same_as<T, int64_t> || std::same_as<T, double>) {
    if (std::same_as<T, int64_t>) schema["format"] = "int64";
    if (has_minimum(field)) schema["minimum"] = number(field.minimum);
    if (has_maximum(field)) schema["maximum"] = number(field.maximum);
    if (field.above_minimum) schema["exclusiveMinimum"] = true;
  } else if constexpr (std::same_as<T, std::string>) {
    if (!field.choices.empty()) {
      schema["enum"] = words(field.choices);
    } else {
      schema["maxLength"] = field.bytes_max;
    }
  } else if constexpr (std::same_as<T, Json>) {
    schema["x-kubernetes-preserve-unknown-fields"] = true;
  }
}

template <class T>
std::string fallback_text(const Field& field, const T& value) {
  if (field.required) return "required";
  if constexpr (std::same_as<T, std::string>) {
    if (value.empty()) return "-";
    const std::string text = dump_json(Json(value));
    return text.size() == value.size() + 2 ? value : text;
  } else if constexpr (std::same_as<T, int64_t> || std::same_as<T, double>) {
    return dump_json(number(static_cast<double>(value)));
  } else if constexpr (std::same_as<T, bool>) {
    return value ? "true" : "false";
  } else {
    return "-";
  }
}

// Describes one struct: its schema, and its fields with paths below `path`.
template <class S>
struct Describer {
  const std::string& path;
  bool with_fallbacks;  // false for status, which users do not write
  Json& schema;
  std::vector<FieldInfo>& fields;
  const S defaults{};

  template <class T>
  void operator()(const Field& field, T S::*member) {
    using Item = typename ItemOf<T>::Type;
    constexpr bool kList = codec::IsVector<T>::value;
    const std::string at = join_path(path, field.name);
    std::string type(kList ? "list of " + std::string(schema_type<Item>()) + "s"
                           : schema_type<Item>());
    if (codec::HasFieldList<Item> || std::same_as<Item, Json>) {
      // An object's members have their own rows.
    } else {
      type += std::same_as<Item, std::string> ? choices_text(field) : range_text(field);
    }
    const std::string fallback =
        with_fallbacks ? fallback_text(field, defaults.*member) : std::string("-");
    fields.push_back(
        {.path = at, .type = type, .fallback = fallback, .meaning = std::string(field.meaning)});

    Json item = {{"type", schema_type<Item>()}};
    add_bounds<Item>(field, item);
    if constexpr (codec::HasFieldList<Item>) {
      const std::string inside = at + (kList ? "[]" : "");
      Schema<Item>::visit(Describer<Item>{inside, with_fallbacks, item, fields});
    }
    Json property = kList ? Json{{"type", "array"}, {"items", item}} : item;
    if (kList) property["maxItems"] = field.items_max;
    if (kList && !field.list_key.empty()) {
      property["x-kubernetes-list-type"] = "map";
      property["x-kubernetes-list-map-keys"] = {field.list_key};
    }
    property["description"] = std::string(field.meaning);
    if (fallback != "-" && fallback != "required") {
      property["description"] = std::string(field.meaning) + " Default: " + fallback + ".";
    }
    schema["properties"][std::string(field.name)] = std::move(property);
    if (field.required) schema["required"].push_back(field.name);
  }

  void refused(const RefusedField& field) {
    const std::string meaning = std::string(field.meaning) + " Not in this version.";
    fields.push_back({.path = join_path(path, field.name),
                      .type = field.type == "array" ? "list of objects" : std::string(field.type),
                      .fallback = "-",
                      .meaning = meaning,
                      .refused = true});
    Json property = {{"type", field.type}, {"description", meaning}};
    Json anything = {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
    if (field.type == "object") property.update(anything);
    if (field.type == "array") property["items"] = std::move(anything);
    schema["properties"][std::string(field.name)] = std::move(property);
  }
};

template <class S>
Json describe(const std::string& path, bool with_fallbacks, std::vector<FieldInfo>& fields) {
  Json schema = {{"type", "object"}};
  Schema<S>::visit(Describer<S>{path, with_fallbacks, schema, fields});
  return schema;
}

Json describe_job(std::vector<FieldInfo>& fields) {
  Json spec = describe<TrainingJobSpec>("spec", true, fields);
  spec["description"] = "What to train, and on how many nodes. Exactly one of train and command.";
  // The scale subresource needs this default.
  spec["properties"]["nodes"]["default"] = TrainingJobSpec{}.nodes;
  Json status = describe<TrainingJobStatus>("status", false, fields);
  status["description"] = "Written only by the controller.";
  const Json text = {{"type", "string"}};
  const Json name = {{"type", "string"}, {"maxLength", kJobNameBytesMax}};
  return {{"type", "object"},
          {"description", "One training run of a model on a group of nodes."},
          {"required", {"spec"}},
          {"properties",
           {{"apiVersion", text},
            {"kind", text},
            {"metadata", {{"type", "object"}, {"properties", {{"name", name}}}}},
            {"spec", std::move(spec)},
            {"status", std::move(status)}}}};
}

}  // namespace

std::vector<FieldInfo> training_job_fields() {
  std::vector<FieldInfo> fields;
  (void)describe_job(fields);
  return fields;
}

Json training_job_schema() {
  std::vector<FieldInfo> fields;
  return describe_job(fields);
}

Json::json_pointer schema_pointer(std::string_view path) {
  Json::json_pointer pointer;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    std::string name(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
    const bool is_item = name.ends_with("[]");
    if (is_item) name.resize(name.size() - 2);
    pointer = pointer / "properties" / name;
    if (is_item) pointer /= "items";
  }
  return pointer;
}

}  // namespace lockstep
