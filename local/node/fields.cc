#include "local/node/fields.h"

#include "local/store/storage.h"

namespace lockstep::local {

const Json& object_of(const Json& object, std::string_view key) {
  static const Json kNone = Json::object();
  const Json* member = find_member(object, key);
  return member == nullptr || !member->is_object() ? kNone : *member;
}

const Json& array_of(const Json& object, std::string_view key) {
  static const Json kNone = Json::array();
  const Json* member = find_member(object, key);
  return member == nullptr || !member->is_array() ? kNone : *member;
}

std::string node_of(const Json& pod) {
  return string_or(object_of(pod, "spec"), "nodeName", "");
}

bool is_terminal(const Json& pod) {
  std::string phase = string_or(object_of(pod, "status"), "phase", "");
  return phase == "Succeeded" || phase == "Failed";
}

bool is_deleting(const Json& object) {
  return metadata_of(object).contains("deletionTimestamp");
}

std::string pod_target(const Json& pod, std::string_view suffix) {
  const Json& metadata = metadata_of(pod);
  return "/api/v1/namespaces/" + string_or(metadata, "namespace", "") + "/pods/" +
         string_or(metadata, "name", "") + std::string(suffix);
}

}  // namespace lockstep::local
