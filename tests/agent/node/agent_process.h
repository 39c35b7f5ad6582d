#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "tests/support/raw_http.h"

namespace lockstep::node {

struct AgentProcessOptions {
  std::string job_uid;  // unique to each test, which finds leftover processes by it
  std::string listen = "127.0.0.1:0";
  int64_t hold_seconds = 600;
  std::string worker_binary{};  // empty: the fake worker
  bool read_stdout = true;      // if false, nobody reads it
  std::vector<std::string> more_env{};
  std::string token_file{};  // empty: one with the token "secret"
};

// A real lockstep-agent with the fake worker, in its own folder. The destructor kills the agent and
// all processes with the job's uid in their environment.
class AgentProcess {
 public:
  explicit AgentProcess(AgentProcessOptions options);
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;
  ~AgentProcess();

  pid_t pid() const { return pid_; }
  int port() const { return port_; }  // 0: it never listened
  const std::string& folder() const { return folder_; }
  std::string stderr_text() const;
  std::string stdout_text() const;
  std::string log_text(int rank) const;
  std::string termination_text() const;

  test::HttpReply put(const Assignment& assignment) const;
  // Returns the response to GET TARGET.
  test::HttpReply get(const std::string& target) const;
  // Waits until `wanted` accepts the state, and returns it. After a generous limit, fails the test
  // and returns the last state.
  AgentState wait_for(const std::function<bool(const AgentState&)>& wanted) const;
  AgentState wait_for_phase(const std::string& phase) const;

  void signal(int number) const;
  // Returns its exit code; 128 + signal if a signal ended it.
  int wait_for_exit();

 private:
  AgentProcessOptions options_;
  std::string folder_;
  pid_t pid_ = -1;
  int port_ = 0;
  int stdout_fds_[2] = {-1, -1};
};

// Returns the processes, except zombies, with LOCKSTEP_JOB_UID=uid in their environment.
std::vector<pid_t> processes_of(const std::string& job_uid);

// Polls until the condition is true; fails the test after a generous limit.
void wait_until(const std::function<bool()>& is_true, const std::string& what);

}  // namespace lockstep::node
