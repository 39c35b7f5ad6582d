#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "common/base/histogram.h"
#include "controller/plan/ledger.h"

namespace lockstep::loop {

// Metrics of the work queue, from the moment when a key starts to wait.
struct QueueMetrics {
  uint64_t adds = 0;
  uint64_t retries = 0;
  Histogram queue_seconds{bounds_seconds(1e-5, 100)};  // from add to pop
  Histogram work_seconds{bounds_seconds(1e-5, 100)};   // from pop to done
};

// Metrics of plans that were made and carried out.
struct ReconcileMetrics {
  uint64_t successes = 0;
  uint64_t conflicts = 0;  // the job had changed meanwhile: planned again
  uint64_t errors = 0;
};

// Returns the share of its time in which a job does steps that count, since all its ranks first
// trained:
//   T / (T + L) x s / (s + r)
// T: seconds in which all ranks trained; L: seconds from each failure until all ranks trained again
// (both up to now); s: steps done; r: steps done again after failures. The second factor is 1 for a
// job that counts no steps. Time before the first step and in suspension is neither T nor L.
// nullopt for a job that has not trained, and for one that is suspended or finished: an alert about
// it would last for as long as it is kept.
std::optional<double> goodput_ratio(const TrainingJobStatus& status, WallTime now);

// Counts what happened to jobs while this process led. Single-threaded.
class JobMetrics {
 public:
  // Records a change of a job's status. `created`: metadata.creationTimestamp.
  void observe(const TrainingJobStatus& before, const TrainingJobStatus& after,
               const std::string& created, WallTime now);

  // Restarts by the reason of the failure; "Other" for reasons that Lockstep does not know.
  const std::map<std::string, uint64_t>& restarts() const { return restarts_; }
  // Finished recoveries: the whole, and each of plan::kRecoveryParts.
  const Histogram& recovery_seconds() const { return recovery_seconds_; }
  const Histogram& part_seconds(size_t part) const { return part_seconds_.at(part); }
  // Time after recoveries until the lost steps had been done again.
  const Histogram& recompute_seconds() const { return recompute_seconds_; }
  // Time from the creation of a job, or the end of its suspension, until all its ranks first
  // trained. Only of jobs that did not fail before.
  const Histogram& ready_seconds() const { return ready_seconds_; }

 private:
  std::map<std::string, uint64_t> restarts_;
  Histogram recovery_seconds_{bounds_seconds(0.1, 5000)};
  std::vector<Histogram> part_seconds_{plan::kRecoveryParts.size(),
                                       Histogram(bounds_seconds(0.01, 5000))};
  Histogram recompute_seconds_{bounds_seconds(0.01, 5000)};
  Histogram ready_seconds_{bounds_seconds(0.1, 5000)};
};

}  // namespace lockstep::loop
