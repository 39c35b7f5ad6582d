#include "cli/run/local_template.h"

#include "common/api/problems.h"
#include "controller/plan/pod_template.h"
#include "local/node/pod_plan.h"

namespace lockstep::cli {
namespace {

void warn(const Json& part, const std::string& path, std::vector<std::string>& warnings) {
  if (part.is_object()) {
    for (const auto& [key, value] : part.items()) warn(value, join_path(path, key), warnings);
  } else if (part.is_array()) {
    for (size_t i = 0; i < part.size(); ++i)
      warn(part[i], path + "[" + std::to_string(i) + "]", warnings);
  } else {
    warnings.push_back(
        path + ": has no effect on a local node, which runs processes instead of containers");
  }
}

// Removes the fields that plan_pod reads from a container.
void remove_supported_fields(Json& container) {
  if (!container.is_object()) return;
  for (const char* key : {"name", "command", "args", "env", "envFrom", "ports", "volumeMounts",
                          "workingDir", "lifecycle", "startupProbe", "livenessProbe",
                          "readinessProbe", "terminationMessagePath", "terminationMessagePolicy"})
    container.erase(key);
}

}  // namespace

Problems local_template_problems(const TrainingJob& job) {
  Problems problems = plan::pod_template_problems(job.spec.podTemplate);
  if (!problems.empty()) return problems;
  Result<local::PodPlan> planned = local::plan_pod(plan::make_worker_pod(job, {}));
  if (planned.ok()) return {};
  const std::string& message = planned.error().message;
  return {"spec.podTemplate" + std::string(message.starts_with("spec.") ? "." : ": ") + message};
}

std::vector<std::string> local_template_warnings(const Json& pod_template) {
  Json rest = pod_template;
  rest.erase("metadata");
  if (const auto spec = rest.find("spec"); spec != rest.end() && spec->is_object()) {
    for (const char* key : {"volumes", "terminationGracePeriodSeconds", "activeDeadlineSeconds"})
      spec->erase(key);
    for (const char* list : {"initContainers", "containers"}) {
      const auto containers = spec->find(list);
      if (containers == spec->end() || !containers->is_array()) continue;
      for (Json& container : *containers) remove_supported_fields(container);
    }
  }
  std::vector<std::string> warnings;
  warn(rest, "spec.podTemplate", warnings);
  return warnings;
}

}  // namespace lockstep::cli
