#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/json.h"
#include "controller/plan/names.h"

namespace lockstep::plan {

// A node of a job, and which of its pods.
struct PodIdentity {
  MemberRole role = MemberRole::kWorker;
  int64_t index = 0;
  int64_t incarnation = 1;
};

struct NewPod {
  MemberRole role = MemberRole::kWorker;
  int64_t index = 0;
  int64_t incarnation = 1;
  int64_t round = 0;                  // status.round at its creation
  std::vector<std::string> avoid{};   // Kubernetes nodes, by required node affinity
  std::vector<std::string> shun{};    // the same, unless nothing else has room
  std::string image = kDefaultImage;  // for a job that names none
  std::string agent_image{};  // its agent is injected into other images; empty: they contain it
  bool scrape_annotations = false;  // prometheus.io/scrape, port and path
  std::string requests{};           // value of kRequestsAnnotation; empty: none
};

// Returns the labels that all objects of a job have.
Json job_labels(std::string_view job);
// Returns the labels of a node's pod, by which the cache finds it.
Json pod_labels(std::string_view job, const PodIdentity& pod);
// Returns the same labels from the pod's name; nullopt if it is not one of the job's.
std::optional<Json> pod_labels_by_name(std::string_view job, std::string_view pod);

// Returns the Pod of one node as it is POSTed. Deterministic. Built in this order:
// - the agent as the container `node`, with PodSecurity `restricted` (without runAsNonRoot for jobs
//   with `command`, since most images run as root)
// - spec.podTemplate, merged in
// - the agent, injected into a user's image
// - the nodes to avoid
Json make_worker_pod(const TrainingJob& job, const NewPod& pod);

// Returns what make_worker_pod() would for another node, given the pod of one node of the same job
// and role. Takes a fraction of the time.
Json pod_like(const Json& other, std::string_view job, const PodIdentity& pod);

// Returns the metadata of an object that the job owns and that belongs to no single pod.
Json owned_metadata(const TrainingJob& job, std::string name);

// Returns the Secret with the job's token, owned by the job.
Json make_token_secret(const TrainingJob& job, const std::string& token);

// Returns what in spec.podTemplate would break the job, each problem with its path; empty if
// nothing.
Problems pod_template_problems(const Json& pod_template);

// Merges `patch` into `base` like a strategic merge patch. Objects merge member by member. Lists of
// named things merge by their merge key (containers by name, volumeMounts by mountPath, ...), with
// new elements appended. Other lists and values are replaced; null removes. Source of the keys: the
// patchMergeKey tags of k8s.io/api/core/v1 types.go.
void merge_template(Json& base, const Json& patch);

}  // namespace lockstep::plan
