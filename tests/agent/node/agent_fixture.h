#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/agent/node/agent_process.h"
#include "tests/agent/node/assignments.h"

// Fixture for tests that run lockstep-agent as a process; each has its own job.
namespace lockstep::node {

class AgentTest : public testing::Test {
 protected:
  // Unique to this test run, so that other processes on the machine are not mistaken for leftovers.
  static std::string new_uid();

  Assignment order(const std::string& job_name, int64_t round = 1, int64_t processes = 1) const;
  // Returns an assignment in which each rank runs a shell script.
  Assignment command(const std::string& script, int64_t processes = 1) const;
  void expect_nothing_left() const;

  const std::string uid_ = new_uid();
};

bool contains(const std::string& text, const std::string& part);

}  // namespace lockstep::node
