#include "tests/agent/node/agent_fixture.h"

#include <unistd.h>

namespace lockstep::node {

std::string AgentTest::new_uid() {
  static int count = 0;
  return "agent-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

Assignment AgentTest::order(const std::string& job_name, int64_t round, int64_t processes) const {
  return make_assignment(
      {.job_uid = uid_, .round = round, .processes = processes, .job_name = job_name});
}

Assignment AgentTest::command(const std::string& script, int64_t processes) const {
  Assignment assignment = order("any", 1, processes);
  assignment.train.reset();
  assignment.command = {"sh", "-c", script};
  return assignment;
}

void AgentTest::expect_nothing_left() const {
  wait_until([&] { return processes_of(uid_).empty(); }, "no process with the job's uid");
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lockstep::node
