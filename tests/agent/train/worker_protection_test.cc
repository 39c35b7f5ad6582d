// Workers that encrypt their traffic, and what they leave behind when they crash.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <string>
#include <vector>

#include "common/crypto/aead.h"
#include "tests/agent/train/small_worker.h"
#include "tests/support/core_dump.h"

namespace lockstep::train {
namespace {

TEST(WorkerProtection, EncryptionChangesNoBitOfTheResult) {
  WorkerWorld::Options options = small_world(2);
  options.encrypts = true;
  WorkerWorld world(options);
  if (!can_encrypt().ok()) {
    world.start();
    EXPECT_EQ(world.wait(), (std::vector<int>{2, 2}));
    EXPECT_NE(world.log(0).find("this lockstep-worker was built without OpenSSL"),
              std::string::npos)
        << world.log(0);
    return;
  }
  ASSERT_NO_FATAL_FAILURE(world.run());
  expect_same_end(world, undisturbed());
}

// It has the job's token and the keys of its connections.
TEST(WorkerProtection, ACrashLeavesNoCoreDump) {
  if (sizeof LOCKSTEP_SANITIZERS > 1) GTEST_SKIP() << "sanitizers end the process in their way";
  if (!test::dumps_core_after(nullptr)) GTEST_SKIP() << "this machine writes no core dumps";
  rlimit own{};
  ASSERT_EQ(::getrlimit(RLIMIT_CORE, &own), 0);
  const rlimit most{own.rlim_max, own.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_CORE, &most), 0);
  WorkerWorld world(small_world(2));
  world.start(1);
  ASSERT_EQ(::setrlimit(RLIMIT_CORE, &own), 0);
  world.wait_until(
      0, [](const ProgressNumbers& numbers) { return numbers.phase == WorkerPhase::kForming; });
  world.kill(0, SIGSEGV);
  siginfo_t end{};
  ASSERT_EQ(::waitid(P_ALL, 0, &end, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(end.si_code, CLD_KILLED) << "dumped: " << (end.si_code == CLD_DUMPED);
  EXPECT_EQ(world.wait()[0], 128 + SIGSEGV);
}

}  // namespace
}  // namespace lockstep::train
