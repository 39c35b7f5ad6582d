#include "local/node/environment.h"

#include <algorithm>

#include "common/base/base64.h"
#include "local/node/fields.h"

namespace lockstep::local {
namespace {

struct Reference {
  const char* field;
  const char* plural;
  const char* kind;   // in kubelet's message for a missing object
  const char* title;  // in its message for a missing key
};

constexpr Reference kSecretReference = {"secret", "secrets", "secret", "Secret"};
constexpr Reference kConfigMapReference = {"configMap", "configmaps", "configmap", "ConfigMap"};

Status add_variable(Environment& environment, const std::string& name, const std::string& value) {
  if (name.empty() || name.find('=') != std::string::npos ||
      (name + value).find('\0') != std::string::npos)
    return cannot("env " + name, "can't set a variable with this name or value");
  auto found = std::find_if(environment.begin(), environment.end(),
                            [&](const auto& variable) { return variable.first == name; });
  if (found != environment.end())
    found->second = value;
  else
    environment.emplace_back(name, value);
  return {};
}

// Returns one value of a Secret or ConfigMap; nullopt if it is missing and optional.
Result<std::optional<std::string>> key_value(const PodSources& sources, const Reference& kind,
                                             const Json& reference) {
  std::string name = string_or(reference, "name", "");
  std::string key = string_or(reference, "key", "");
  bool optional = bool_or(reference, "optional", false);
  std::optional<Json> object = sources.read(kind.plural, name);
  if (!object) {
    if (optional) return std::optional<std::string>();
    return not_found(std::string(kind.kind) + " \"" + name + "\" not found");
  }
  TRY_ASSIGN(std::optional<std::string> value, data_value(*object, key));
  if (!value && !optional)
    return not_found("couldn't find key " + key + " in " + kind.title + " " +
                     sources.plan.namespace_ + "/" + name);
  return value;
}

Result<std::optional<std::string>> value_from(const PodSources& sources,
                                              const ContainerPlan& container,
                                              const std::string& name, const Json& source) {
  if (const Json* field = find_member(source, "fieldRef")) {
    TRY_ASSIGN(std::string value,
               field_value(sources.pod, sources.facts, string_or(*field, "fieldPath", "")));
    return std::optional<std::string>(std::move(value));
  }
  if (const Json* resource = find_member(source, "resourceFieldRef")) {
    TRY_ASSIGN(std::string value,
               resource_value(sources.plan, sources.facts, *resource, &container));
    return std::optional<std::string>(std::move(value));
  }
  for (const Reference& kind : {kSecretReference, kConfigMapReference}) {
    if (const Json* reference = find_member(source, std::string(kind.field) + "KeyRef"))
      return key_value(sources, kind, *reference);
  }
  return cannot("env " + name + ".valueFrom",
                "supports only fieldRef, resourceFieldRef, secretKeyRef and configMapKeyRef");
}

Status add_all_of(const PodSources& sources, const Json& entry, Environment& environment) {
  std::string prefix = string_or(entry, "prefix", "");
  for (const Reference& kind : {kSecretReference, kConfigMapReference}) {
    const Json* reference = find_member(entry, std::string(kind.field) + "Ref");
    if (reference == nullptr) continue;
    std::string name = string_or(*reference, "name", "");
    std::optional<Json> object = sources.read(kind.plural, name);
    if (!object && bool_or(*reference, "optional", false)) continue;
    if (!object) return not_found(std::string(kind.kind) + " \"" + name + "\" not found");
    std::map<std::string, std::string> values;
    TRY_ASSIGN(values, data_values(*object));
    for (const auto& [key, value] : values) TRY(add_variable(environment, prefix + key, value));
  }
  return {};
}

}  // namespace

Result<std::optional<std::string>> data_value(const Json& object, const std::string& key) {
  const Json* plain = find_member(object_of(object, "data"), key);
  const Json* binary = find_member(object_of(object, "binaryData"), key);
  const Json* value = plain != nullptr ? plain : binary;
  if (value == nullptr || !value->is_string()) return std::optional<std::string>();
  bool is_secret = string_or(object, "kind", "") == "Secret";
  if (plain != nullptr && !is_secret) return std::optional<std::string>(value->get<std::string>());
  TRY_ASSIGN(std::string decoded, base64_decode(value->get_ref<const std::string&>()));
  return std::optional<std::string>(std::move(decoded));
}

Result<std::map<std::string, std::string>> data_values(const Json& object) {
  std::map<std::string, std::string> values;
  for (const char* part : {"data", "binaryData"}) {
    for (const auto& [key, ignored] : object_of(object, part).items()) {
      TRY_ASSIGN(std::optional<std::string> value, data_value(object, key));
      if (value) values[key] = *std::move(value);
    }
  }
  return values;
}

std::string expand(const std::string& text, const Environment& environment) {
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '$' || at + 1 == text.size()) {
      result += text[at];
      continue;
    }
    if (text[at + 1] == '$') {
      result += text[++at];
      continue;
    }
    size_t end = text[at + 1] == '(' ? text.find(')', at) : std::string::npos;
    auto found = environment.end();
    if (end != std::string::npos)
      found = std::find_if(environment.begin(), environment.end(), [&](const auto& variable) {
        return variable.first == std::string_view(text).substr(at + 2, end - at - 2);
      });
    if (found == environment.end()) {
      result += text[at];
      continue;
    }
    result += found->second;
    at = end;
  }
  return result;
}

Result<Environment> container_environment(const PodSources& sources,
                                          const ContainerPlan& container) {
  Environment environment;
  for (const Json& entry : container.environment_from) TRY(add_all_of(sources, entry, environment));
  for (const Json& entry : container.environment) {
    std::string name = string_or(entry, "name", "");
    const Json* source = find_member(entry, "valueFrom");
    if (source == nullptr) {
      TRY(add_variable(environment, name, expand(string_or(entry, "value", ""), environment)));
      continue;
    }
    TRY_ASSIGN(std::optional<std::string> value, value_from(sources, container, name, *source));
    if (value) TRY(add_variable(environment, name, *value));
  }
  return environment;
}

}  // namespace lockstep::local
