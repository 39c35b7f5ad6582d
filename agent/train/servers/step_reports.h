#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/rpc/server.h"
#include "agent/train/servers/job_calls.h"
#include "agent/train/servers/worker_watch.h"
#include "common/base/result.h"

namespace lockstep::train {

// Reports of the workers about their steps to one server (kReportStep), and where all of them
// stop. The server may lack reports that it was not there for. Single-threaded.
class StepReports {
 public:
  explicit StepReports(uint32_t workers) : reached_(workers), unaware_(workers) {}

  void take(const StepReport& report, rpc::Request request);
  // The newest step that all workers have completed, and that this one has.
  uint64_t step() const;
  uint64_t step_of(uint32_t rank) const { return reached_[rank]; }
  // This server was asked to stop, and tells the workers.
  void ask_to_stop() { news_.stops = 1; }
  // Returns for whom calls wait, if any do. Refuses calls that their workers have given up.
  std::optional<AwaitedWorkers> awaited();
  // Refuses what waits.
  void refuse_all(const Error& error);

 private:
  struct Waiting {
    uint64_t step = 0;
    rpc::Request request;
  };
  void agree_on_stop(uint32_t rank, const StepReport& report);
  // Keeps the report until all workers have reported this step.
  void add_loss(uint32_t rank, const StepReport& report);
  void answer(rpc::Request& request) const { request.answer({.head = head_bytes(news_)}); }

  // Reports by rank, of steps that not all workers have reported.
  std::map<uint64_t, std::map<uint32_t, StepReport>> steps_;
  std::vector<Waiting> waiting_;
  std::vector<uint64_t> reached_;  // the newest step that each worker has reported
  std::vector<uint64_t> unaware_;  // likewise, of workers that do not know where to stop; else 0
  StepNews news_;
};

}  // namespace lockstep::train
