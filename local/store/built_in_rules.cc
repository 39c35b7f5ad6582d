#include "local/store/built_in_rules.h"

#include <algorithm>

#include "common/base/base64.h"
#include "local/store/crd.h"

namespace lockstep::local {
namespace {

constexpr size_t kDataBytesMax = 1u << 20;

using Refusal = std::optional<ApiResponse>;

const Json& member(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const Json* found = find_member(object, key);
  return found == nullptr || found->is_null() ? kNone : *found;
}

std::string name_of(const Json& object) {
  return string_or(metadata_of(object), "name", "");
}

bool all_strings(const Json& values) {
  return values.is_object() && std::all_of(values.begin(), values.end(),
                                           [](const Json& value) { return value.is_string(); });
}

void set_default(Json& object, const char* key, Json value) {
  if (!object.contains(key) || object[key].is_null()) object[key] = std::move(value);
}

// Returns whether an image name leaves its version open: no digest, and no tag except "latest".
bool is_newest(const std::string& image) {
  const size_t slash = image.rfind('/');
  const size_t colon = image.find(':', slash == std::string::npos ? 0 : slash);
  if (image.find('@') != std::string::npos) return false;
  return colon == std::string::npos || image.substr(colon) == ":latest";
}

// Source: Kubernetes, SetDefaults_Container.
void fill_container(Json& container) {
  set_default(container, "imagePullPolicy",
              is_newest(string_or(container, "image", "")) ? "Always" : "IfNotPresent");
  set_default(container, "resources", Json::object());
  set_default(container, "terminationMessagePath", "/dev/termination-log");
  set_default(container, "terminationMessagePolicy", "File");
}

Refusal fill_pod(const ResourceType& type, Json& pod) {
  Json& spec = pod["spec"];
  if (spec.is_null()) spec = Json::object();
  if (!spec.is_object()) return bad_request("spec: expected an object");
  const Json& containers = member(spec, "containers");
  std::vector<StatusCause> causes;
  if (!containers.is_array() || containers.empty())
    causes.push_back({"FieldValueRequired", "Required value", "spec.containers"});
  for (size_t i = 0; containers.is_array() && i < containers.size(); ++i) {
    if (string_or(containers[i], "name", "").empty())
      causes.push_back({"FieldValueRequired", "Required value",
                        "spec.containers[" + std::to_string(i) + "].name"});
  }
  set_default(spec, "restartPolicy", "Always");
  const Json& policy = spec["restartPolicy"];
  if (policy != "Always" && policy != "OnFailure" && policy != "Never")
    causes.push_back({"FieldValueNotSupported",
                      "Unsupported value: " + dump_json(policy) +
                          ": supported values: \"Always\", \"OnFailure\", \"Never\"",
                      "spec.restartPolicy"});
  if (!causes.empty()) return invalid_object(type, name_of(pod), causes);
  for (const char* list : {"containers", "initContainers"}) {
    if (!member(spec, list).is_array()) continue;
    for (Json& container : spec[list])
      if (container.is_object()) fill_container(container);
  }
  set_default(spec, "terminationGracePeriodSeconds", 30);
  set_default(spec, "dnsPolicy", "ClusterFirst");
  set_default(spec, "schedulerName", "default-scheduler");
  set_default(spec, "securityContext", Json::object());
  set_default(spec, "enableServiceLinks", true);
  pod["status"] = {{"phase", "Pending"}, {"qosClass", "BestEffort"}};
  return std::nullopt;
}

// Returns the immutable part of a pod's spec. Source: ValidatePodUpdate.
Json fixed_part(Json spec) {
  if (!spec.is_object()) return spec;
  for (const char* key : {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"})
    spec.erase(key);
  for (const char* list : {"containers", "initContainers"}) {
    if (!spec.contains(list) || !spec[list].is_array()) continue;
    for (Json& container : spec[list])
      if (container.is_object()) container.erase("image");
  }
  return spec;
}

// Moves stringData, which exists for writers' convenience, into data.
Refusal fold_string_data(Json& secret) {
  const Json* plain = find_member(secret, "stringData");
  if (plain == nullptr) return std::nullopt;
  if (plain->is_null()) {
    secret.erase("stringData");
    return std::nullopt;
  }
  if (!all_strings(*plain)) return bad_request("stringData: expected a map of strings");
  Json data = member(secret, "data");
  if (!data.is_object()) return bad_request("data: expected a map of strings");
  for (const auto& [key, value] : plain->items())
    data[key] = base64_encode(value.get_ref<const std::string&>());
  secret["data"] = std::move(data);
  secret.erase("stringData");
  return std::nullopt;
}

bool is_data_key(std::string_view key) {
  return !key.empty() && key.size() <= 253 && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

// Checks data and binaryData of configmaps and secrets.
Refusal check_data(const ResourceType& type, const Json& object) {
  std::vector<StatusCause> causes;
  size_t bytes = 0;
  for (const char* part : {"data", "binaryData"}) {
    const Json& data = member(object, part);
    if (!data.is_object() || !all_strings(data))
      return bad_request(std::string(part) + ": expected a map of strings");
    bool encoded = is_core(type, "secrets") || part == std::string_view("binaryData");
    for (const auto& [key, value] : data.items()) {
      if (part == std::string_view("binaryData") && member(object, "data").contains(key))
        causes.push_back(
            wrong_field(key, "duplicate of key present in data", "binaryData[" + key + "]"));
      const std::string& text = value.get_ref<const std::string&>();
      bytes += text.size();
      if (encoded && !base64_decode(text).ok())
        return bad_request(std::string(part) + "." + key + ": expected base64");
      if (!is_data_key(key))
        causes.push_back({"FieldValueInvalid",
                          "Invalid value: " + dump_json(key) +
                              ": a valid config key must consist of alphanumeric characters, '-', "
                              "'_' or '.'",
                          std::string(part) + "[" + key + "]"});
    }
  }
  if (bytes > (is_core(type, "secrets") ? kDataBytesMax / 3 * 4 + 4 : kDataBytesMax))
    causes.push_back({"FieldValueTooLong",
                      "Too long: must have at most " + std::to_string(kDataBytesMax) + " bytes",
                      is_core(type, "secrets") ? "data" : ""});
  if (causes.empty()) return std::nullopt;
  return invalid_object(type, name_of(object), causes);
}

Refusal check_immutable(const ResourceType& type, const Json& old, const Json& object) {
  std::vector<StatusCause> causes;
  auto forbid = [&](const std::string& field, const std::string& why) {
    causes.push_back({"FieldValueForbidden", "Forbidden: " + why, field});
  };
  if (bool_or(old, "immutable", false)) {
    const std::string why = "field is immutable when `immutable` is set";
    if (!bool_or(object, "immutable", false)) forbid("immutable", why);
    for (const char* part : {"data", "binaryData"})
      if (member(old, part) != member(object, part)) forbid(part, why);
  }
  if (is_core(type, "secrets") && string_or(old, "type", "") != string_or(object, "type", ""))
    causes.push_back(
        {"FieldValueInvalid",
         "Invalid value: " + dump_json(string_or(object, "type", "")) + ": field is immutable",
         "type"});
  if (causes.empty()) return std::nullopt;
  return invalid_object(type, name_of(object), causes);
}

// Picks an address in 10.96.0.0/12, the default of kubeadm's clusters.
std::string service_address(uint64_t random) {
  uint64_t host = random % ((1u << 20) - 2) + 1;
  return "10." + std::to_string(96 + (host >> 16)) + "." + std::to_string(host >> 8 & 0xFF) + "." +
         std::to_string(host & 0xFF);
}

Refusal fill_service(const ResourceType& type, const std::string& address, Json& service) {
  Json& spec = service["spec"];
  if (spec.is_null()) spec = Json::object();
  if (!spec.is_object()) return bad_request("spec: expected an object");
  set_default(spec, "type", "ClusterIP");
  set_default(spec, "sessionAffinity", "None");
  bool external = spec["type"] == "ExternalName";
  if (!external && string_or(spec, "clusterIP", "").empty()) spec["clusterIP"] = address;
  if (!external) set_default(spec, "clusterIPs", Json::array({spec["clusterIP"]}));
  const Json& ports = member(spec, "ports");
  if (!external && spec["clusterIP"] != "None" && (!ports.is_array() || ports.empty()))
    return invalid_object(type, name_of(service),
                          {{"FieldValueRequired", "Required value", "spec.ports"}});
  if (!ports.is_array()) return std::nullopt;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (!ports[i].is_object()) return bad_request("spec.ports: expected a list of objects");
    Json& port = spec["ports"][i];
    int64_t number = int_or(port, "port", 0);
    if (number < 1 || number > 65535)
      return invalid_object(
          type, name_of(service),
          {{"FieldValueInvalid",
            "Invalid value: " + std::to_string(number) + ": must be between 1 and 65535, inclusive",
            "spec.ports[" + std::to_string(i) + "].port"}});
    set_default(port, "protocol", "TCP");
    set_default(port, "targetPort", number);
  }
  return std::nullopt;
}

Refusal update_service(const ResourceType& type, const Json& old, Json& service) {
  const Json& old_spec = member(old, "spec");
  std::string address = string_or(old_spec, "clusterIP", "");
  Json& spec = service["spec"];
  if (spec.is_null()) spec = Json::object();
  if (!spec.is_object()) return bad_request("spec: expected an object");
  if (string_or(spec, "clusterIP", "").empty() && old_spec.contains("clusterIPs")) {
    spec["clusterIP"] = address;
    spec["clusterIPs"] = old_spec["clusterIPs"];
  }
  if (!address.empty() && string_or(spec, "type", "ClusterIP") != "ExternalName" &&
      string_or(spec, "clusterIP", "") != address)
    return invalid_object(
        type, name_of(service),
        {{"FieldValueInvalid",
          "Invalid value: " + dump_json(string_or(spec, "clusterIP", "")) + ": field is immutable",
          "spec.clusterIP"}});
  return fill_service(type, address, service);
}

Refusal check_lease(const ResourceType& type, const Json& lease) {
  std::vector<StatusCause> causes;
  const Json& spec = member(lease, "spec");
  if (int64_t seconds = int_or(spec, "leaseDurationSeconds", 1); seconds <= 0)
    causes.push_back(wrong_field(seconds, "must be greater than 0", "spec.leaseDurationSeconds"));
  if (int64_t count = int_or(spec, "leaseTransitions", 0); count < 0)
    causes.push_back(
        wrong_field(count, "must be greater than or equal to 0", "spec.leaseTransitions"));
  if (causes.empty()) return std::nullopt;
  return invalid_object(type, name_of(lease), causes);
}

void fill_namespace(Json& object) {
  if (!member(object, "spec").is_object()) object.erase("spec");
  object["spec"]["finalizers"] = {"kubernetes"};
  object["status"] = {{"phase", "Active"}};
  object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"];
}

}  // namespace

Refusal complete_new(const ResourceType& type, const CreateContext& context, Json& object) {
  if (is_pod(type)) return fill_pod(type, object);
  if (type.plural == "leases" && !type.custom) return check_lease(type, object);
  if (is_crd(type)) return check_crd(type, nullptr, object);
  if (is_namespace(type)) fill_namespace(object);
  if (is_core(type, "services")) {
    object["status"] = {{"loadBalancer", Json::object()}};
    return fill_service(type, service_address(context.random), object);
  }
  if (is_core(type, "secrets")) {
    if (auto error = fold_string_data(object)) return error;
    set_default(object, "type", "Opaque");
  }
  if (is_core(type, "secrets") || is_core(type, "configmaps")) return check_data(type, object);
  return std::nullopt;
}

Refusal complete_updated(const ResourceType& type, const UpdateContext& context, Json& object) {
  if (is_crd(type)) return check_crd(type, &context.old, object);
  if (is_core(type, "services")) return update_service(type, context.old, object);
  if (type.plural == "leases" && !type.custom) return check_lease(type, object);
  if (is_namespace(type)) {
    object["spec"] = member(context.old, "spec");  // the server owns its finalizers
    if (object["metadata"].value("labels", Json()).is_null())
      object["metadata"]["labels"] = Json::object();
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"];
  }
  if (is_pod(type) && fixed_part(member(context.old, "spec")) != fixed_part(member(object, "spec")))
    return invalid_object(type, context.key.name,
                          {{"FieldValueForbidden",
                            "Forbidden: pod updates may not change fields other than the image, "
                            "activeDeadlineSeconds, tolerations, terminationGracePeriodSeconds",
                            "spec"}});
  if (is_core(type, "secrets")) {
    if (auto error = fold_string_data(object)) return error;
    set_default(object, "type", string_or(context.old, "type", "Opaque"));
  }
  if (is_core(type, "secrets") || is_core(type, "configmaps")) {
    if (auto error = check_data(type, object)) return error;
    return check_immutable(type, context.old, object);
  }
  return std::nullopt;
}

}  // namespace lockstep::local
