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
#include "agent/node/program_progress.h"
#include "agent/node/round_machine.h"
#include "agent/node/worker_log.h"
#include "common/api/progress_page.h"

namespace lockstep {

// What a rank's processes have used and counted while the agent lives.
struct RankTotals {
  TrainCounters counted;           // by a command's program
  double ended_cpu_seconds = 0;    // of processes that are gone
  double running_cpu_seconds = 0;  // the most that was seen of those that run
  XidTotals ended_xids;            // of GPUs of processes that are gone
};

// The worker processes of a round: their pipes, logs and progress. Tells the RoundMachine
// what becomes of them. Used by the supervisor's thread alone.
class WorkerSet {
 public:
  WorkerSet(LaunchContext context, Cgroup cgroup, OutputQueue* output);
  ~WorkerSet();

  // Starts the workers of the machine's assignment; those of an earlier round are gone.
  void start(RoundMachine& machine, TimePoint now);
  // SIGTERM to each that runs. A lockstep-worker's children are its own affair until it has ended;
  // of a command, the whole process group gets it.
  void terminate() const;
  // Nothing of the round is left: closes what is open.
  void clear();

  // Those that run, each the leader of its process group.
  std::set<pid_t> leaders() const;
  void on_end(const ProcessEnd& end, RoundMachine& machine, TimePoint now);

  void add_polls(std::vector<pollfd>& polls) const;
  // Takes what the workers have printed so far, as long as there is room for it, each in turn.
  void read_output(TimePoint now);
  // Passes on what their progress pages, or a command's progress files, say by now.
  void read_progress(RoundMachine& machine, TimePoint now, WallTime wall);

  bool any_running() const;
  // Fills in ranks, counters and what is known of processes, of which it looks up what they use.
  void describe(MetricsInput& input);

 private:
  struct Worker;

  void write_round_files(const Assignment& assignment) const;
  Status start_one(Worker& worker, const Assignment& assignment, int shm_fd);
  void drain(Worker& worker);
  void read_page(size_t local_rank, RoundMachine& machine, WallTime wall);
  void describe_gpu(size_t local_rank, MetricsInput& input) const;
  void read_board(size_t local_rank, RoundMachine& machine, TimePoint now);
  static void watch_for_hang(Worker& worker, TimePoint now);
  void read_file(size_t local_rank, RoundMachine& machine, TimePoint now, WallTime wall);
  ProgressStatus node_progress(WallTime wall) const;

  LaunchContext context_;
  Cgroup cgroup_;
  OutputQueue* output_;
  std::vector<std::unique_ptr<Worker>> workers_;
  TrainCounters counters_;
  std::vector<RankTotals> totals_;  // by local rank; of all rounds
  bool is_command_ = false;
  size_t first_to_read_ = 0;
  double share_ = 1;
  int64_t started_ = 0;
  int64_t restarts_ = 0;
  int64_t oom_kills_ = -1;  // when the round began, and after each that was named
};

}  // namespace lockstep
