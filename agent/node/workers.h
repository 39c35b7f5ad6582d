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
#include "common/api/round_channel.h"

namespace lockstep::node {

// Resource usage and counters of a rank's processes, over the agent's lifetime.
struct RankTotals {
  TrainCounters train_counters;    // from a command's program
  double ended_cpu_seconds = 0;    // of processes that have ended
  double running_cpu_seconds = 0;  // the largest value seen for the running ones
  XidTotals ended_xids;            // from GPUs of processes that have ended
};

// The worker processes of a round, with their pipes, logs and progress. Reports their events to the
// RoundMachine. Used only by the supervisor's thread.
class WorkerSet {
 public:
  WorkerSet(LaunchContext context, Cgroup cgroup, OutputQueue* output);
  ~WorkerSet();

  // Starts the workers of the machine's assignment, and gives it to survivors(). All other workers
  // of an earlier round must be gone.
  void start(RoundMachine& machine, TimePoint now);
  // Returns the processes that have left their round, because a peer was lost or hung, and can
  // serve this assignment. They have torn down everything of their round but their memory of
  // states.
  std::set<pid_t> survivors(const Assignment& next) const;
  // Returns whether a running worker might still leave its round without ending.
  bool any_may_leave() const;
  // From now on no worker but these can leave its round: the others are about to be killed, and a
  // message that one of them has just sent counts for nothing.
  void give_up_all_but(const std::set<pid_t>& pids);
  // Gives all workers this view of the round's servers, as soon as each has room for it.
  void give_view(const std::string& text);
  // Sends what had no room.
  void send_views();
  // Sends SIGTERM to each running worker. For a command, sends it to the whole process group; a
  // lockstep-worker handles its own children until it ends.
  void terminate() const;
  // Closes everything of the round, after its processes are gone.
  void clear();

  // Returns the pids of the running workers, each the leader of its process group, and of
  // survivors.
  std::set<pid_t> leaders() const;
  void on_end(const ProcessEnd& end, RoundMachine& machine, TimePoint now);

  void add_polls(std::vector<pollfd>& polls) const;
  // Reports workers that have left their round to the machine, as if their processes had ended.
  void read_departures(RoundMachine& machine, TimePoint now, WallTime wall);
  // Reads the workers' output while the queue has room, each worker in turn.
  void read_output(TimePoint now);
  // Reads progress pages, or a command's progress files, and passes changes to the machine.
  void read_progress(RoundMachine& machine, TimePoint now, WallTime wall);

  bool any_running() const;
  // Fills in ranks, counters and process usage, which it reads from /proc.
  void describe(MetricsInput& input);

 private:
  struct Worker;

  // Makes memory for the states of as many ranks, which stays until the number changes: a rank of a
  // later round finds what the rank of the same place has left.
  void keep_states(int64_t ranks);
  void write_round_files(const Assignment& assignment) const;
  bool can_serve(size_t local_rank, const Assignment& next) const;
  // A process that stays for the next round, and what belongs to it; pid 0: there is none.
  struct Survivor;
  std::vector<Survivor> take_survivors(const Assignment& next);
  Status start_one(int64_t local_rank, const Assignment& assignment, int shm_fd,
                   Survivor&& survivor);
  // Gives the round to a process that has served an earlier one.
  static Status hand_over(Worker& worker, Survivor&& survivor, int shm_fd);
  static Status spawn(Worker& worker, const std::vector<int>& inherited_fds);
  void on_left(size_t local_rank, const LeftRound& left, RoundMachine& machine, TimePoint now);
  void drain(Worker& worker);
  void read_page(size_t local_rank, RoundMachine& machine, TimePoint now, WallTime wall);
  void describe_gpu(size_t local_rank, MetricsInput& input) const;
  void read_storage(size_t local_rank, RoundMachine& machine);
  void describe_storage(MetricsInput& input) const;
  void read_board(size_t local_rank, RoundMachine& machine, TimePoint now);
  static void watch_for_hang(Worker& worker, TimePoint now);
  static void watch_command(Worker& worker, TimePoint now);
  void read_file(size_t local_rank, RoundMachine& machine, TimePoint now, WallTime wall);
  ProgressStatus node_progress(WallTime wall) const;

  LaunchContext context_;
  Cgroup cgroup_;
  OutputQueue* output_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::string view_;  // the newest that was given
  TrainCounters counters_;
  std::vector<RankTotals> totals_;  // by local rank; over all rounds
  std::vector<int> state_fds_;      // by local rank; over all rounds. -1: there is none
  StorageTotals ended_storage_;     // of processes that have ended
  bool has_stored_ = false;         // this node has or had a rank 0 with a place for states
  bool is_command_ = false;
  size_t first_to_read_ = 0;
  double share_ = 1;
  bool has_started_ = false;  // a round
  int64_t restarts_ = 0;
  int64_t oom_kills_ = -1;  // at the start of the round, plus those already attributed to a worker
};

}  // namespace lockstep::node
