#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/api/problems.h"
#include "common/base/json.h"

namespace lockstep::plan {

// The Pod Security Standards `baseline` and `restricted` for Linux pods. Source: kubernetes.io,
// Concepts / Security / Pod Security Standards, as of Kubernetes 1.34, without its exceptions for
// Windows pods and user namespaces. Also checks the annotations that servers before 1.27 read
// instead of fields.

// A container of any kind.
struct CheckedContainer {
  const Json& json;
  std::string path;
};

// A pod with the paths that messages give for its parts. Refers to the arguments of its
// constructor.
class CheckedPod {
 public:
  // `given` is spec.podTemplate, whose indices the paths have.
  CheckedPod(const Json& pod, const Json& given, std::string_view policy);

  const Json& annotations() const { return annotations_; }
  const Json& spec() const { return spec_; }
  const Json& context() const { return context_; }  // the pod's securityContext
  const std::vector<CheckedContainer>& containers() const { return containers_; }
  // Returns the path of the element of a list of named things; by its name if it is not the user's.
  std::string path_of(std::string_view list, const Json& element) const;

  // Adds the problem that this value is not allowed.
  void refuse(const std::string& path, const Json& found, std::string_view instead);
  // Adds the problem that the policy requires something which is missing.
  void require(const std::string& path, std::string_view expected);
  Problems take_problems() { return std::move(problems_); }

 private:
  const Json& annotations_;
  const Json& spec_;
  const Json& context_;
  const Json& given_spec_;
  std::string policy_;
  std::vector<CheckedContainer> containers_{};
  Problems problems_{};
};

inline constexpr char kPodPath[] = "spec.podTemplate.spec";

// Returns the member, or null.
const Json& member_of(const Json& object, std::string_view key);
// Returns whether a value is absent or false, as the server reads it.
bool is_unset(const Json& value);
// Calls visit(securityContext, its path) for the pod's and each container's.
template <class Visit>
void visit_contexts(const CheckedPod& pod, const Visit& visit) {
  visit(pod.context(), std::string(kPodPath) + ".securityContext");
  for (const CheckedContainer& container : pod.containers()) {
    visit(member_of(container.json, "securityContext"), container.path + ".securityContext");
  }
}

void check_baseline(CheckedPod& pod);
void check_restricted(CheckedPod& pod);  // only what it adds to baseline

}  // namespace lockstep::plan
