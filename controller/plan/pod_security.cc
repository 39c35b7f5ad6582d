#include "controller/plan/pod_security.h"

#include <array>

namespace lockstep::plan {
namespace {

constexpr std::array<std::string_view, 3> kContainerLists{"initContainers", "containers",
                                                          "ephemeralContainers"};

}  // namespace

const Json& member_of(const Json& object, std::string_view key) {
  static const Json kNothing;
  const Json* found = find_member(object, key);
  return found == nullptr ? kNothing : *found;
}

bool is_unset(const Json& value) {
  return value.is_null() || value == false;
}

CheckedPod::CheckedPod(const Json& pod, const Json& given, std::string_view policy)
    : annotations_(member_of(member_of(pod, "metadata"), "annotations")),
      spec_(member_of(pod, "spec")),
      context_(member_of(spec_, "securityContext")),
      given_spec_(member_of(given, "spec")),
      policy_(policy) {
  for (const std::string_view list : kContainerLists) {
    for (const Json& container : member_of(spec_, list)) {
      containers_.push_back({.json = container, .path = path_of(list, container)});
    }
  }
}

std::string CheckedPod::path_of(std::string_view list, const Json& element) const {
  const std::string name = string_or(element, "name", "");
  const std::string path = std::string(kPodPath) + "." + std::string(list);
  size_t index = 0;
  for (const Json& own : member_of(given_spec_, list)) {
    if (string_or(own, "name", "") == name) return path + "[" + std::to_string(index) + "]";
    ++index;
  }
  return path + "[" + in_quotes(name) + "]";
}

void CheckedPod::refuse(const std::string& path, const Json& found, std::string_view instead) {
  problems_.push_back(path + ": " + describe_found(found) + " is not allowed by podPolicy " +
                      policy_ + "; " + std::string(instead));
}

void CheckedPod::require(const std::string& path, std::string_view expected) {
  problems_.push_back(path + ": missing; podPolicy " + policy_ + " requires " +
                      std::string(expected));
}

}  // namespace lockstep::plan
