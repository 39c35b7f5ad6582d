#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/node/cgroup.h"
#include "agent/node/launch.h"
#include "agent/node/metrics.h"
#include "agent/node/process.h"
#include "agent/node/round_machine.h"
#include "agent/node/worker_log.h"
#include "common/api/progress_page.h"

namespace lockstep {

// The worker processes of a round: their pipes, logs and progress pages. Tells the RoundMachine
// what becomes of them. Used by the supervisor's thread alone.
class WorkerSet {
 public:
  WorkerSet(LaunchContext context, Cgroup cgroup, OutputQueue* output);
  ~WorkerSet();

  // Starts the workers of the machine's assignment; those of an earlier round are gone.
  void start(RoundMachine& machine, TimePoint now);
  // SIGTERM to each that runs; its own children are its own affair until it has ended.
  void terminate() const;
  // Nothing of the round is left: closes what is open.
  void clear();

  // Those that run, each the leader of its process group.
  std::set<pid_t> leaders() const;
  void on_end(const ProcessEnd& end, RoundMachine& machine, TimePoint now);

  void add_polls(std::vector<pollfd>& polls) const;
  // Takes what the workers have printed so far.
  void read_output();
  // Passes on what their progress pages say by now.
  void read_progress(RoundMachine& machine, WallTime wall);

  bool any_running() const;
  // Fills in ranks, counters and what is known of processes.
  void describe(MetricsInput& input) const;

 private:
  struct Worker;

  Status start_one(Worker& worker, const Assignment& assignment, int shm_fd);
  void drain(Worker& worker);

  LaunchContext context_;
  Cgroup cgroup_;
  OutputQueue* output_;
  std::vector<std::unique_ptr<Worker>> workers_;
  TrainCounters counters_;
  double share_ = 1;
  int64_t started_ = 0;
  int64_t restarts_ = 0;
  int64_t oom_kills_ = -1;  // when the round began, and after each that was named
};

}  // namespace lockstep
