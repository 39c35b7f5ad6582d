#include "local/table/lookup.h"

namespace lockstep::local {
namespace {

const Json kNothing;
const Json kNoElements = Json::array();

}  // namespace

const Json& value_at(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* value = &object;
  for (std::string_view name : path) {
    value = find_member(*value, name);
    if (value == nullptr) return kNothing;
  }
  return *value;
}

const Json& list_at(const Json& object, std::initializer_list<std::string_view> path) {
  const Json& value = value_at(object, path);
  return value.is_array() ? value : kNoElements;
}

std::string text_at(const Json& object, std::initializer_list<std::string_view> path,
                    std::string_view fallback) {
  const Json& value = value_at(object, path);
  if (!value.is_string() || value.get_ref<const std::string&>().empty())
    return std::string(fallback);
  return value.get<std::string>();
}

const Json& condition_of(const Json& conditions, std::string_view type) {
  if (!conditions.is_array()) return kNothing;
  for (const Json& condition : conditions)
    if (string_or(condition, "type", "") == type) return condition;
  return kNothing;
}

}  // namespace lockstep::local
