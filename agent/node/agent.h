#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/node/call_queue.h"
#include "agent/node/round_machine.h"
#include "agent/node/workers.h"
#include "common/base/clock.h"

namespace lockstep::node {

struct AgentSettings {
  NodeIdentity identity;
  RoundLimits limits;
  std::string job_name;
  LaunchContext launch;
  std::string termination_path;     // file of the message that Kubernetes shows; empty: none
  bool create_termination = false;  // if false, write it only if it already exists
  int signal_fd = -1;               // from become_init()
  int output_fd = -1;               // receives the workers' output lines, prefixed with their ranks
};

// The supervisor: a single-threaded event loop that owns the state machine and the processes. All
// methods except run() and post() are called on that thread; other threads use post().
class Agent {
 public:
  using StateCallback = std::function<void(Result<AgentState>)>;

  Agent(AgentSettings settings, const Clock& clock, Cgroup cgroup);

  // Blocks until the agent is done and returns its exit code. All waiting callbacks have been
  // called by then.
  int run();
  void post(std::function<void()> call) { calls_.post(std::move(call)); }

  // Applies the assignment, or responds with an error that says why not. On success, responds with
  // the new state.
  void put_assignment(const Assignment& assignment, const StateCallback& respond);
  // Waits for a state that is new to a controller.
  struct StateWait {
    int64_t since = 0;  // the sequence that the controller knows
    Duration timeout{};
    Duration progress_after{};  // until mere progress counts as new
  };
  // Responds when the sequence differs from `since`, or after the timeout.
  void get_state(const StateWait& wait, StateCallback respond);
  std::string metrics();

 private:
  struct Waiter {
    int64_t since = 0;
    TimePoint progress_at;
    TimePoint deadline;
    StateCallback respond;
  };

  void wait_for_events();
  int wait_ms() const;
  void handle_events();
  void reap();
  void drive();
  void carry_out(Action action);
  void clear_processes();
  bool is_due(const Waiter& waiter, TimePoint now) const;
  void answer_waiters(bool all);
  void report_result();

  AgentSettings settings_;
  const Clock& clock_;
  CallQueue calls_;
  OutputQueue output_;
  WorkerSet workers_;
  RoundMachine machine_;
  std::vector<Waiter> waiters_;
  std::string reported_;  // the termination message last written
  bool quit_ = false;
};

}  // namespace lockstep::node
