#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/node/board_watch.h"
#include "common/api/agent_messages.h"
#include "common/api/progress_page.h"
#include "common/api/servers_view.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::node {

// The identity of this agent. Assignments for another one are refused.
struct NodeIdentity {
  std::string job_uid;
  std::string boot_id;  // of this process
  int64_t node_index = 0;
  int64_t incarnation = 0;
};

struct RoundLimits {
  Duration hold = std::chrono::minutes(10);  // after the workers' exit, without a controller
  Duration progress_interval = std::chrono::milliseconds(500);  // between two published steps
  Duration farewell = std::chrono::seconds(1);  // until a controller knows that ranks have saved
  Duration clear_limit = std::chrono::seconds(10);  // for killed processes to go, when leaving
  // For workers to leave the round before by themselves once the next one is assigned. Longer than
  // a communicator takes to say goodbye to its peers.
  Duration leave_limit = std::chrono::seconds(1);
};

// The next steps of the supervisor, in this order.
enum class Action {
  kTerminate,  // SIGTERM to every worker
  kKill,       // SIGKILL to every process below the agent, until all_processes_gone(); while
               // clearing(), not to those that leave their round and can serve the next one
  kSpawn,      // the workers of assignment(); spawned() or start_failed() for each
  kGiveView,   // of the round's servers (assignment().servers_view), to every worker
  kQuit,       // leave with exit_code()
};

struct WorkerEnd {
  int64_t exit_code = 0;  // 128 + signal where a signal ended it
  int64_t signal = 0;
  bool oom_killed = false;
  std::string log_tail;
  bool hung = false;  // the agent ended it, because it made no progress
};

// The state machine of an agent, as data: assignments, exits, progress, signals and time go in;
// actions and the AgentState come out. It knows no process, socket or clock. Each event names its
// round; events of an earlier round change nothing.
//
//   Idle -> [kKill] clearing -> all processes gone: [kSpawn] running -> workers end -> holding
//   running or holding + newer round -> [kKill] clearing ...
//   running + view in which this server is gone, or this worker anew, since -> [kKill] clearing ...
//   any + Exit or SIGTERM -> [kTerminate] stopping -> all ended, or grace over: [kKill] leaving
//   holding for too long -> [kKill] leaving;  leaving + all processes gone: [kQuit]
//
// Single-threaded. After every event, and at next_deadline(), the caller calls step() until it
// returns no actions.
class RoundMachine {
 public:
  RoundMachine(NodeIdentity identity, RoundLimits limits);

  // kInvalid: not for this agent, or nothing to run. kConflict: an older round, another hash of the
  // same round, another view with the same number, another incarnation, or the agent is leaving. An
  // older view of the round is ignored.
  Status assign(const Assignment& assignment, TimePoint now);
  void terminate(TimePoint now);  // the agent got SIGTERM
  void note_controller_contact(TimePoint now) { last_contact_ = now; }
  void note_told(int64_t sequence);  // a controller was sent the state with this sequence

  void spawned(int64_t local_rank, int64_t pid);
  void start_failed(int64_t local_rank, const std::string& message, TimePoint now);
  void exited(int64_t round, int64_t local_rank, const WorkerEnd& end, TimePoint now);
  void progress(int64_t round, int64_t local_rank, const ProgressNumbers& numbers, WallTime wall);
  // Takes what the round's rank 0 reports of the job's checkpoints; other ranks report nothing.
  void storage(int64_t round, int64_t local_rank, const StorageNotes& notes);
  // Takes the progress that the programs of a command report: the rank's own steps, and the node's
  // sum.
  void program_progress(int64_t round, int64_t local_rank, int64_t step,
                        const ProgressStatus& of_node);
  void update_speed(int64_t round, int64_t local_rank, const std::optional<WorkerSpeed>& speed);
  // Takes what the rank's board shows: whether it waits, since when, and whether it is alive.
  void update_health(int64_t round, int64_t local_rank, const BoardWatch::RankHealth& health);
  void all_processes_gone();  // no process is left below the agent that has to be killed

  std::vector<Action> step(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  // The published state; its sequence grows at once when a worker's state or phase changes, and at
  // most once in progress_interval for mere progress.
  AgentState state(TimePoint now) const;
  int64_t sequence() const { return published_.sequence; }
  // Returns the sequence of the last change that was more than progress.
  int64_t sequence_beyond_progress() const { return sequence_beyond_progress_; }
  int64_t round() const { return live_.round; }
  // True between kTerminate and kKill. Processes that a user's command has started get the grace
  // period too; it ends with all_processes_gone().
  bool stopping() const { return mode_ == Mode::kStopping; }
  bool killing_leftovers() const { return mode_ == Mode::kClearing || mode_ == Mode::kLeaving; }
  // True from an assignment until its workers start. Processes that can serve it are not leftovers.
  bool clearing() const { return mode_ == Mode::kClearing; }
  // Returns whether workers of the round before get a moment to leave it, rather than be killed.
  bool lets_workers_leave(TimePoint now) const { return clearing() && now < leave_deadline_; }
  // The current assignment. Valid once one was accepted.
  const Assignment& assignment() const { return *assignment_; }
  bool has_assignment() const { return assignment_.has_value(); }
  int exit_code() const { return exit_code_; }
  // The first failure of the round, if there was one.
  const WorkerState* first_failure() const;

 private:
  enum class Mode { kIdle, kClearing, kRunning, kStopping, kLeaving, kGone };

  Status check_identity(const Assignment& assignment) const;
  Status check_round(const Assignment& assignment) const;
  void begin_round(const Assignment& assignment, TimePoint now);
  void begin_processes(TimePoint now);
  Status take_view(const Assignment& assignment, TimePoint now);
  bool begins_anew(const ServersView& view) const;
  void begin_stop(int exit_code, Duration grace, TimePoint now);
  bool must_be_told(TimePoint now) const;
  void leave(TimePoint now);
  void end_worker(WorkerState& worker, const WorkerEnd& end, TimePoint now);
  void advance(TimePoint now);
  void note_beginning(TimePoint now);
  void publish(TimePoint now);
  bool all_ended() const;
  bool all_completed() const;
  int result() const;
  int result_of_stop() const;
  const char* phase() const;
  TimePoint hold_deadline() const;
  WorkerState* find(int64_t local_rank);

  NodeIdentity identity_;
  RoundLimits limits_;
  Mode mode_ = Mode::kIdle;
  std::optional<Assignment> assignment_;
  std::vector<Action> actions_;
  AgentState live_;
  AgentState published_;
  int spawned_ = 0;
  bool terminated_ = false;  // by a signal or Exit: no further round starts
  int exit_code_ = 0;
  bool all_processes_gone_ = false;
  int64_t first_failed_local_rank_ = -1;
  std::vector<TimePoint> failed_at_;    // by local rank; default if it has not failed
  std::vector<TimePoint> waits_since_;  // by local rank, if it waits
  TimePoint last_contact_{};
  TimePoint ended_at_{};
  TimePoint stop_deadline_{};
  TimePoint leave_deadline_{};
  TimePoint assigned_at_{};
  std::optional<TimePoint> cleared_at_;  // when the round before had left
  TimePoint published_at_{};
  std::optional<TimePoint> saved_at_;  // when a rank last left after SIGTERM
  int64_t sequence_beyond_progress_ = 1;
  int64_t sequence_before_end_ = 0;  // published before that
  int64_t told_sequence_ = 0;
};

}  // namespace lockstep::node
