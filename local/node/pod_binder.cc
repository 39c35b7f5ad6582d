#include "local/node/pod_binder.h"

#include "common/api/training_job.h"
#include "local/node/fields.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

const EventRecorder::Source kSource = {"default-scheduler", ""};

std::string target_of(const Placement& placement) {
  return "/api/v1/namespaces/" + placement.namespace_ + "/pods/" + placement.name;
}

EventRecorder::About about(const Placement& placement) {
  return {"Pod", placement.namespace_, placement.name, placement.uid, ""};
}

}  // namespace

PodBinder::PodBinder(ApiCaller& api, const Clock& clock, EventRecorder& events,
                     const SchedulerOptions& options)
    : api_(api),
      clock_(clock),
      events_(events),
      scheduler_([this](const std::string& namespace_,
                        const Json& owner) { return owner_facts(namespace_, owner); },
                 options) {}

void PodBinder::step() {
  for (const Placement& placement : scheduler_.place(clock_.now())) {
    if (placement.node.empty())
      explain(placement);
    else
      bind(placement);
  }
}

void PodBinder::bind(const Placement& placement) {
  Json binding = {{"metadata", {{"name", placement.name}, {"uid", placement.uid}}},
                  {"target", {{"kind", "Node"}, {"name", placement.node}}}};
  if (!api_.create(target_of(placement) + "/binding", binding).ok())
    return scheduler_.not_bound(placement.uid, clock_.now());
  events_.normal(kSource, about(placement), "Scheduled",
                 "Successfully assigned " + placement.namespace_ + "/" + placement.name + " to " +
                     placement.node);
}

void PodBinder::explain(const Placement& placement) {
  Json condition = {{"type", "PodScheduled"},
                    {"status", "False"},
                    {"reason", "Unschedulable"},
                    {"message", placement.message},
                    {"lastTransitionTime", rfc3339(clock_.wall_now())}};
  api_.patch(target_of(placement) + "/status",
             {{"metadata", {{"uid", placement.uid}}},
              {"status", {{"conditions", Json::array({condition})}}}});
  events_.warning(kSource, about(placement), "FailedScheduling", placement.message);
}

// A job says how many pods it wants; for other owners the number is unknown.
OwnerFacts PodBinder::owner_facts(const std::string& namespace_, const Json& reference) {
  if (string_or(reference, "kind", "") != kKind) return {};
  ApiResponse job = api_.get("/apis/" + string_or(reference, "apiVersion", "") + "/namespaces/" +
                             namespace_ + "/trainingjobs/" + string_or(reference, "name", ""));
  if (!job.ok()) return {};
  return {string_or(metadata_of(job.body), "creationTimestamp", ""),
          int_or(object_of(job.body, "spec"), "nodes", 0)};
}

}  // namespace lockstep::local
