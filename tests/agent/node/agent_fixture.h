#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/agent/node/agent_process.h"
#include "tests/agent/node/assignments.h"

// What the tests of lockstep-agent as a process have in common: a job of their own.
namespace lockstep {

class AgentTest : public testing::Test {
 protected:
  // Of this test run alone, so that nothing else on the machine is taken for a leftover.
  static std::string new_uid();

  Assignment order(const std::string& job_name, int64_t round = 1, int64_t processes = 1) const;
  // Of a shell script that each rank runs.
  Assignment command(const std::string& script, int64_t processes = 1) const;
  void expect_nothing_left() const;

  const std::string uid_ = new_uid();
};

bool contains(const std::string& text, const std::string& part);

}  // namespace lockstep
