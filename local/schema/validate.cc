#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "local/schema/format.h"
#include "local/schema/pattern.h"
#include "local/schema/schema.h"

namespace lockstep::local {
namespace {

// Above this value, not every integer is a double.
constexpr double kWholeLimit = 9007199254740992.0;

// Formats a number as Go's %v prints a float64: 1e+06, 0.5.
std::string float_text(double value) {
  char text[40];
  const double size = std::abs(value);
  const bool plain = value == 0 || (size >= 1e-4 && size < 1e6);
  const auto end = std::to_chars(text, text + sizeof text, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  return {text, end.ptr};
}

// Formats a value as messages show it.
std::string shown(const Json& value) {
  return value.is_number_float() ? float_text(value.get<double>()) : dump_json(value);
}

std::string in_quotes(std::string_view text) {
  return dump_json(Json(text));
}

// True for integers that fit int64. To an API server, larger ones are numbers.
bool is_integer(const Json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
}

bool is_whole(const Json& value) {
  if (is_integer(value)) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return number == std::floor(number) && std::abs(number) < kWholeLimit;
}

std::string_view type_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  return is_integer(value) ? "integer" : "number";
}

bool has_type(const SchemaNode& schema, const Json& value) {
  if (value.is_null()) return schema.nullable || (schema.type.empty() && !schema.int_or_string);
  if (schema.int_or_string) return is_whole(value) || value.is_string();
  if (schema.type.empty()) return true;
  if (schema.type == "integer") return is_whole(value);
  if (schema.type == "number") return value.is_number();
  return schema.type == type_of(value);
}

int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

class Validator {
 public:
  explicit Validator(size_t problems_max) : problems_max_(problems_max) {}

  // Leaves apiVersion, kind and metadata of a root to the caller.
  void check(const SchemaNode& schema, const Json& value, bool is_root = false);
  std::vector<SchemaProblem> take() { return std::move(problems_); }

 private:
  bool is_full() const { return problems_.size() >= problems_max_; }
  void add(std::string_view reason, std::string message) {
    if (!is_full()) problems_.push_back({std::string(reason), std::move(message), path_});
  }
  // Adds `Invalid value: 0: spec.nodes in body should be ...`.
  void add_invalid(const std::string& shown_value, const std::string& should) {
    add("FieldValueInvalid", "Invalid value: " + shown_value + ": " + in_body() + should);
  }
  std::string in_body() const { return path_ + " in body "; }

  void check_type(const SchemaNode& schema, const Json& value);
  void check_enum(const SchemaNode& schema, const Json& value);
  void check_text(const SchemaNode& schema, const std::string& text);
  void check_number(const SchemaNode& schema, const Json& value);
  void check_object(const SchemaNode& schema, const Json& object, bool is_resource);
  void check_array(const SchemaNode& schema, const Json& array);
  void check_duplicates(const SchemaNode& schema, const Json& array);
  void check_embedded(const Json& object);

  // Extends the path during its own lifetime.
  class Step {
   public:
    Step(std::string& path, const std::string& name) : path_(path), size_(path.size()) {
      if (!path.empty()) path += '.';
      path += name;
    }
    Step(std::string& path, size_t index) : path_(path), size_(path.size()) {
      path += '[' + std::to_string(index) + ']';
    }
    ~Step() { path_.resize(size_); }

   private:
    std::string& path_;
    const size_t size_;
  };

  const size_t problems_max_;
  std::string path_;
  std::vector<SchemaProblem> problems_;
};

void Validator::check_type(const SchemaNode& schema, const Json& value) {
  if (has_type(schema, value)) return;
  const std::string wanted = schema.int_or_string ? "integer,string" : schema.type;
  const std::string found = in_quotes(type_of(value));
  add("FieldValueTypeInvalid",
      "Invalid value: " + found + ": " + in_body() + "must be of type " + wanted + ": " + found);
}

void Validator::check_enum(const SchemaNode& schema, const Json& value) {
  const auto& allowed = schema.enum_values;
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string values;
  for (const Json& choice : allowed) {
    const std::string text = choice.is_string() ? choice.get<std::string>() : dump_json(choice);
    values += (values.empty() ? "" : ", ") + in_quotes(text);
  }
  add("FieldValueNotSupported",
      "Unsupported value: " + (value.is_null() ? in_quotes("null") : shown(value)) +
          ": supported values: " + values);
}

void Validator::check_text(const SchemaNode& schema, const std::string& text) {
  // An API server reports only the first of these.
  if (schema.length_max && characters(text) > *schema.length_max) {
    add("FieldValueTooLong",
        "Too long: may not be longer than " + std::to_string(*schema.length_max));
  } else if (schema.length_min && characters(text) < *schema.length_min) {
    add_invalid(in_quotes(text),
                "should be at least " + std::to_string(*schema.length_min) + " chars long");
  } else if (schema.matcher != nullptr && !schema.matcher->matches(text)) {
    add_invalid(in_quotes(text), "should match '" + schema.pattern + "'");
  }
  if (!schema.format.empty() && !has_format(schema.format, text)) {
    add("FieldValueTypeInvalid", "Invalid value: " + in_quotes(text) + ": " + in_body() +
                                     "must be of type " + schema.format + ": " + in_quotes(text));
  }
}

void Validator::check_number(const SchemaNode& schema, const Json& value) {
  const double number = value.get<double>();
  const auto bound_text = [&](double bound) {
    const bool whole = value.is_number_integer() && std::abs(bound) < kWholeLimit;
    return whole ? std::to_string(static_cast<int64_t>(bound)) : float_text(bound);
  };
  if (schema.multiple_of) {
    const double ratio = number / *schema.multiple_of;
    if (ratio != std::round(ratio)) {
      add_invalid(shown(value), "should be a multiple of " + bound_text(*schema.multiple_of));
    }
  }
  if (schema.maximum &&
      (schema.exclusive_maximum ? number >= *schema.maximum : number > *schema.maximum)) {
    add_invalid(shown(value), std::string("should be less than ") +
                                  (schema.exclusive_maximum ? "" : "or equal to ") +
                                  bound_text(*schema.maximum));
  }
  if (schema.minimum &&
      (schema.exclusive_minimum ? number <= *schema.minimum : number < *schema.minimum)) {
    add_invalid(shown(value), std::string("should be greater than ") +
                                  (schema.exclusive_minimum ? "" : "or equal to ") +
                                  bound_text(*schema.minimum));
  }
}

void Validator::check_object(const SchemaNode& schema, const Json& object, bool is_resource) {
  const auto count = static_cast<int64_t>(object.size());
  if (schema.properties_min && count < *schema.properties_min) {
    return add_invalid(
        std::to_string(count),
        "should have at least " + std::to_string(*schema.properties_min) + " properties");
  }
  if (schema.properties_max && count > *schema.properties_max) {
    return add("FieldValueTooMany", "Too many: " + std::to_string(count) + ": must have at most " +
                                        std::to_string(*schema.properties_max) + " items");
  }
  for (const auto& [name, value] : object.items()) {
    if (is_full()) return;
    if (is_resource && (name == "apiVersion" || name == "kind" || name == "metadata")) continue;
    const SchemaNode* member = schema.member(name);
    if (member == nullptr) continue;
    const Step step(path_, name);
    check(*member, value);
  }
  for (const std::string& name : schema.required) {
    if (object.contains(name)) continue;
    const Step step(path_, name);
    add("FieldValueRequired", "Required value");
  }
}

void Validator::check_duplicates(const SchemaNode& schema, const Json& array) {
  if (schema.list_type == ListType::kAtomic) return;
  std::set<Json> seen;
  for (size_t i = 0; i < array.size() && !is_full(); ++i) {
    Json key = array[i];
    if (schema.list_type == ListType::kMap) {
      if (!array[i].is_object()) continue;  // already reported
      key = Json::object();
      for (const std::string& name : schema.list_keys) {
        if (const Json* member = find_member(array[i], name)) key[name] = *member;
      }
    }
    if (seen.insert(key).second) continue;
    const Step step(path_, i);
    add("FieldValueDuplicate", "Duplicate value: " + shown(key));
  }
}

void Validator::check_array(const SchemaNode& schema, const Json& array) {
  const auto count = static_cast<int64_t>(array.size());
  for (size_t i = 0; schema.items != nullptr && i < array.size() && !is_full(); ++i) {
    const Step step(path_, i);
    check(*schema.items, array[i]);
  }
  if (schema.items_min && count < *schema.items_min) {
    add_invalid(std::to_string(count),
                "should have at least " + std::to_string(*schema.items_min) + " items");
  }
  if (schema.items_max && count > *schema.items_max) {
    add("FieldValueTooMany", "Too many: " + std::to_string(count) + ": must have at most " +
                                 std::to_string(*schema.items_max) + " items");
  }
  check_duplicates(schema, array);
}

void Validator::check_embedded(const Json& object) {
  for (const std::string name : {"apiVersion", "kind"}) {
    const Json* member = find_member(object, name);
    const Step step(path_, name);
    if (member == nullptr || *member == "") {
      add("FieldValueRequired", "Required value: must not be empty");
    } else if (!member->is_string()) {
      add("FieldValueTypeInvalid", "Invalid value: " + shown(*member) + ": must be a string");
    } else if (const auto& text = member->get_ref<const std::string&>();
               name == "apiVersion" && std::count(text.begin(), text.end(), '/') > 1) {
      add("FieldValueInvalid",
          "Invalid value: " + in_quotes(text) + ": unexpected GroupVersion string: " + text);
    }
  }
}

void Validator::check(const SchemaNode& schema, const Json& value, bool is_root) {
  check_type(schema, value);
  check_enum(schema, value);
  if (value.is_string()) {
    check_text(schema, value.get_ref<const std::string&>());
  } else if (value.is_number()) {
    check_number(schema, value);
  } else if (value.is_array()) {
    check_array(schema, value);
  } else if (value.is_object()) {
    check_object(schema, value, is_root || schema.embedded_resource);
    if (schema.embedded_resource) check_embedded(value);
  }
}

}  // namespace

std::vector<SchemaProblem> validate(const SchemaNode& schema, const Json& object,
                                    size_t problems_max) {
  Validator validator(problems_max);
  validator.check(schema, object, true);
  return validator.take();
}

}  // namespace lockstep::local
