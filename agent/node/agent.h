#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/node/mailbox.h"
#include "agent/node/round_machine.h"
#include "agent/node/workers.h"
#include "common/base/clock.h"

namespace lockstep {

struct AgentSettings {
  NodeIdentity identity;
  RoundLimits limits;
  std::string job_name;
  LaunchContext launch;
  std::string termination_path;     // of the message that Kubernetes shows; empty: none
  bool create_termination = false;  // else it is written only where it already exists
  int signal_fd = -1;               // from become_init()
  int output_fd = -1;               // the workers' lines go here, with their ranks
};

// The supervisor: one loop on one thread that owns the machine and the processes. Everything but
// run() and post() is called on that thread; other threads hand their calls to post().
class Agent {
 public:
  using StateCallback = std::function<void(Result<AgentState>)>;

  Agent(AgentSettings settings, const Clock& clock, Cgroup cgroup);

  // Until the agent is done; returns its exit code. Every waiting callback has been called by then.
  int run();
  void post(std::function<void()> call) { mailbox_.post(std::move(call)); }

  // Carries it out, or says why not; `respond` gets the state after it.
  void put_assignment(const Assignment& assignment, const StateCallback& respond);
  // Responds when the sequence isn't `since` (any more), or after `timeout`.
  void get_state(int64_t since, Duration timeout, StateCallback respond);
  std::string metrics();

 private:
  struct Waiter {
    int64_t since = 0;
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
  void answer_waiters(bool all);
  void report_result();

  AgentSettings settings_;
  const Clock& clock_;
  Mailbox mailbox_;
  OutputQueue output_;
  WorkerSet workers_;
  RoundMachine machine_;
  std::vector<Waiter> waiters_;
  std::string reported_;  // the termination message as it was last written
  bool quit_ = false;
};

}  // namespace lockstep
