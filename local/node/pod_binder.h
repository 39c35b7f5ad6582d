#pragma once

#include <string>

#include "common/base/clock.h"
#include "local/node/api_caller.h"
#include "local/node/event_recorder.h"
#include "local/node/scheduler.h"

namespace lockstep::local {

// Carries out the scheduler's decisions: binds pods, or writes the condition and event that explain
// why a pod can't be placed. Used on the node's thread only.
class PodBinder {
 public:
  // All arguments outlive the object.
  PodBinder(ApiCaller& api, const Clock& clock, EventRecorder& events,
            const SchedulerOptions& options);

  Scheduler& scheduler() { return scheduler_; }
  void step();
  TimePoint next_deadline() const { return scheduler_.next_deadline(); }

 private:
  OwnerFacts owner_facts(const std::string& namespace_, const Json& reference);
  void bind(const Placement& placement);
  void explain(const Placement& placement);

  ApiCaller& api_;
  const Clock& clock_;
  EventRecorder& events_;
  Scheduler scheduler_;
};

}  // namespace lockstep::local
