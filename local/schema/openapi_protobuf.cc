#include <bit>

#include "local/schema/openapi.h"

namespace lockstep::local {
namespace {

// A message in protobuf's wire format, written field by field. Default values are left out, as in
// proto3.
// Source: protobuf.dev, "Encoding".
class Message {
 public:
  void text(uint32_t field, std::string_view value) {
    if (!value.empty()) add_bytes(field, value);
  }
  // Writes an empty message too: its presence has a meaning.
  void message(uint32_t field, const Message& value) { add_bytes(field, value.bytes_); }
  void flag(uint32_t field, bool value) {
    if (value) add_number(field, 1);
  }
  void integer(uint32_t field, int64_t value) {
    if (value != 0) add_number(field, static_cast<uint64_t>(value));
  }
  void real(uint32_t field, double value) {
    if (value == 0) return;
    add_varint(field << 3 | 1);
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xFF);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void add_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void add_number(uint32_t field, uint64_t value) {
    add_varint(field << 3);
    add_varint(value);
  }
  void add_bytes(uint32_t field, std::string_view value) {
    add_varint(field << 3 | 2);
    add_varint(value.size());
    bytes_ += value;
  }

  std::string bytes_;
};

// Field numbers and message names are those of openapiv2/OpenAPIv2.proto.

Message any(const Json& value) {
  Message message;
  message.text(2, dump_json(value));  // the yaml field; JSON is valid YAML
  return message;
}

// Makes a NamedAny, NamedSchema, NamedPathItem or similar.
Message named(const std::string& name, const Message& value) {
  Message message;
  message.text(1, name);
  message.message(2, value);
  return message;
}

void add_extensions(const Json& object, uint32_t field, Message& message) {
  for (const auto& [name, value] : object.items()) {
    if (name.starts_with("x-")) message.message(field, named(name, any(value)));
  }
}

Message schema_of(const Json& schema);

struct ScalarField {
  std::string_view name;
  uint32_t field;
};

void add_bounds(const Json& schema, Message& message) {
  constexpr ScalarField kReals[] = {{"multipleOf", 6}, {"maximum", 7}, {"minimum", 9}};
  constexpr ScalarField kIntegers[] = {{"maxLength", 11},     {"minLength", 12},
                                       {"maxItems", 14},      {"minItems", 15},
                                       {"maxProperties", 17}, {"minProperties", 18}};
  for (const ScalarField& each : kReals) {
    message.real(each.field, number_or(schema, each.name, 0));
  }
  for (const ScalarField& each : kIntegers) {
    message.integer(each.field, int_or(schema, each.name, 0));
  }
  message.flag(8, bool_or(schema, "exclusiveMaximum", false));
  message.flag(10, bool_or(schema, "exclusiveMinimum", false));
  message.text(13, string_or(schema, "pattern", ""));
}

void add_members(const Json& schema, Message& message) {
  if (const Json* additional = find_member(schema, "additionalProperties")) {
    Message item;
    item.message(1, schema_of(*additional));
    message.message(21, item);
  }
  if (const Json* items = find_member(schema, "items")) {
    Message item;
    item.message(1, schema_of(*items));
    message.message(23, item);
  }
  if (const Json* properties = find_member(schema, "properties")) {
    Message list;
    for (const auto& [name, property] : properties->items()) {
      list.message(1, named(name, schema_of(property)));
    }
    message.message(25, list);
  }
}

// Makes a Schema.
Message schema_of(const Json& schema) {
  Message message;
  message.text(1, string_or(schema, "$ref", ""));
  message.text(2, string_or(schema, "format", ""));
  message.text(4, string_or(schema, "description", ""));
  if (const Json* value = find_member(schema, "default")) message.message(5, any(*value));
  add_bounds(schema, message);
  if (const Json* required = find_member(schema, "required")) {
    for (const Json& name : *required) message.text(19, name.get_ref<const std::string&>());
  }
  if (const Json* values = find_member(schema, "enum")) {
    for (const Json& value : *values) message.message(20, any(value));
  }
  if (const std::string type = string_or(schema, "type", ""); !type.empty()) {
    Message item;
    item.text(1, type);
    message.message(22, item);
  }
  add_members(schema, message);
  add_extensions(schema, 31, message);
  return message;
}

// Makes a Parameter with a BodyParameter.
Message body_parameter(const Json& parameter) {
  Message body;
  body.text(1, string_or(parameter, "description", ""));
  body.text(2, string_or(parameter, "name", ""));
  body.text(3, string_or(parameter, "in", ""));
  body.flag(4, bool_or(parameter, "required", false));
  if (const Json* schema = find_member(parameter, "schema")) body.message(5, schema_of(*schema));
  Message message;
  message.message(1, body);
  return message;
}

// Makes a Parameter with a NonBodyParameter, which holds a QueryParameterSubSchema or
// PathParameterSubSchema.
Message other_parameter(const Json& parameter) {
  const std::string in = string_or(parameter, "in", "");
  Message inner;
  inner.flag(1, bool_or(parameter, "required", false));
  inner.text(2, in);
  inner.text(3, string_or(parameter, "description", ""));
  inner.text(4, string_or(parameter, "name", ""));
  inner.text(in == "query" ? 6 : 5, string_or(parameter, "type", ""));
  Message non_body, message;
  non_body.message(in == "query" ? 3 : 4, inner);
  message.message(2, non_body);
  return message;
}

void add_parameters(const Json& object, uint32_t field, Message& message) {
  const Json* parameters = find_member(object, "parameters");
  if (parameters == nullptr) return;
  for (const Json& parameter : *parameters) {
    Message item;  // ParametersItem
    const bool is_body = string_or(parameter, "in", "") == "body";
    item.message(1, is_body ? body_parameter(parameter) : other_parameter(parameter));
    message.message(field, item);
  }
}

// Makes Responses: one NamedResponseValue with a Response per status code.
Message responses_of(const Json& responses) {
  Message message;
  for (const auto& [code, response] : responses.items()) {
    Message inner, value;
    inner.text(1, string_or(response, "description", ""));
    if (const Json* schema = find_member(response, "schema")) {
      Message item;  // SchemaItem
      item.message(1, schema_of(*schema));
      inner.message(2, item);
    }
    value.message(1, inner);
    message.message(1, named(code, value));
  }
  return message;
}

Message operation_of(const Json& operation) {
  Message message;
  message.text(5, string_or(operation, "operationId", ""));
  for (const auto& [name, field] : {std::pair{"produces", 6u}, std::pair{"consumes", 7u}}) {
    const Json* types = find_member(operation, name);
    if (types == nullptr) continue;
    for (const Json& type : *types) message.text(field, type.get_ref<const std::string&>());
  }
  add_parameters(operation, 8, message);
  if (const Json* responses = find_member(operation, "responses")) {
    message.message(9, responses_of(*responses));
  }
  add_extensions(operation, 13, message);
  return message;
}

Message path_item(const Json& item) {
  constexpr ScalarField kMethods[] = {
      {"get", 2}, {"put", 3}, {"post", 4}, {"delete", 5}, {"patch", 8}};
  Message message;
  for (const ScalarField& method : kMethods) {
    if (const Json* operation = find_member(item, method.name)) {
      message.message(method.field, operation_of(*operation));
    }
  }
  add_parameters(item, 9, message);
  add_extensions(item, 10, message);
  return message;
}

// Adds a map of the document, Paths or Definitions, as a message that lists named values.
void add_named(const Json& document, std::string_view member, uint32_t field, uint32_t inner_field,
               Message (*write)(const Json&), Message& message) {
  const Json* values = find_member(document, member);
  if (values == nullptr) return;
  Message list;
  for (const auto& [name, value] : values->items()) {
    list.message(inner_field, named(name, write(value)));
  }
  message.message(field, list);
}

}  // namespace

std::string openapi_v2_protobuf(const Json& document) {
  Message message;
  message.text(1, string_or(document, "swagger", ""));
  if (const Json* info = find_member(document, "info")) {
    Message information;
    information.text(1, string_or(*info, "title", ""));
    information.text(2, string_or(*info, "version", ""));
    message.message(2, information);
  }
  add_named(document, "paths", 8, 2, path_item, message);
  add_named(document, "definitions", 9, 1, schema_of, message);
  return message.take();
}

}  // namespace lockstep::local
