#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "common/base/histogram.h"

namespace lockstep {

// Of the work queue, from the moment that a key waits.
struct QueueMetrics {
  uint64_t adds = 0;
  uint64_t retries = 0;
  Histogram queue_seconds{bounds_seconds(1e-5, 100)};  // from add to pop
  Histogram work_seconds{bounds_seconds(1e-5, 100)};   // from pop to done
};

// Of plans made and carried out.
struct ReconcileMetrics {
  uint64_t successes = 0;
  uint64_t conflicts = 0;  // the job had changed meanwhile: planned again
  uint64_t errors = 0;
};

// What happened to jobs while this process led. Single-threaded.
class JobMetrics {
 public:
  // A job's status has become another. `created`: metadata.creationTimestamp.
  void observe(const TrainingJobStatus& before, const TrainingJobStatus& after,
               const std::string& created, WallTime now);

  const std::map<std::string, uint64_t>& restarts() const { return restarts_; }  // by reason
  const Histogram& recovery_seconds() const { return recovery_seconds_; }
  const Histogram& ready_seconds() const { return ready_seconds_; }

 private:
  std::map<std::string, uint64_t> restarts_;
  Histogram recovery_seconds_{bounds_seconds(0.1, 5000)};
  Histogram ready_seconds_{bounds_seconds(0.1, 5000)};
};

}  // namespace lockstep
