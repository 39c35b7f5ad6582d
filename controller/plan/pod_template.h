#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/json.h"
#include "controller/plan/names.h"

namespace lockstep {

struct NewPod {
  int64_t index = 0;
  int64_t incarnation = 1;
  int64_t round = 0;                  // status.round at its creation
  std::vector<std::string> avoid{};   // Kubernetes nodes, by required node affinity
  std::string image = kDefaultImage;  // of a job that names none
  std::string agent_image{};          // whose agent other images get; empty: they have it
  bool scrape_annotations = false;    // prometheus.io/scrape, port and path
};

// What marks the pod of a node, and how the cache finds it.
Json worker_labels(std::string_view job, int64_t index, int64_t incarnation);
// The same from the pod's name; nullopt where it isn't one of the job's.
std::optional<Json> worker_labels_by_name(std::string_view job, std::string_view pod);

// The Pod of one node as it is POSTed: the agent as the container `node`, PodSecurity `restricted`
// (jobs with `command` but for runAsNonRoot, since most images run as root), then spec.podTemplate
// merged in, then the agent put into an image of the user's, then the nodes to avoid.
// Deterministic.
Json make_worker_pod(const TrainingJob& job, const NewPod& pod);

// The Secret with the job's token, owned by the job.
Json make_token_secret(const TrainingJob& job, const std::string& token);

// What in spec.podTemplate would break the job, each by its path; empty: nothing.
Problems pod_template_problems(const Json& pod_template);

// Merges `patch` into `base` as a strategic merge does: objects member by member, lists of named
// things by their merge key (containers by name, volumeMounts by mountPath, ...; new ones are
// appended), other lists and values replaced, null removes. Source of the keys: the patchMergeKey
// tags of k8s.io/api/core/v1 types.go.
void merge_template(Json& base, const Json& patch);

}  // namespace lockstep
