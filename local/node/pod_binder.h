#pragma once

#include <string>

#include "common/base/clock.h"
#include "local/node/api_caller.h"
#include "local/node/event_recorder.h"
#include "local/node/scheduler.h"

namespace lockstep::local {

// Carries out what the scheduler wants: bindings, or the condition and the event that say why there
// is none. On the node's thread.
class PodBinder {
 public:
  // All of it outlives the object.
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
