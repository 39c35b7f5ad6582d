#include "common/base/core_dumps.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "tests/support/core_dump.h"

namespace lockstep {
namespace {

constexpr uid_t kNobody = 65534;

TEST(CoreDumps, AreNotWrittenByProgramsThatForbidThem) {
  if (!test::dumps_core_after(nullptr)) GTEST_SKIP() << "this machine writes none anyway";
  EXPECT_FALSE(test::dumps_core_after(forbid_core_dumps));
  EXPECT_FALSE(test::dumps_core_after(forbid_core_dumps_of_readable_process));
}

// Whether another process of the same user, without privileges, reads this one's memory.
bool is_read_after(void (*forbid)()) {
  int secret = 42;
  std::array<int, 2> ready{};
  std::array<int, 2> over{};
  EXPECT_EQ(::pipe(ready.data()) + ::pipe(over.data()), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    if (::setuid(kNobody) != 0) ::_exit(1);
    ::close(over[1]);
    // A change of the user makes a process undumpable; a program that is executed begins anew.
    ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    forbid();
    char byte = 0;
    static_cast<void>(!::write(ready[1], &byte, 1));
    static_cast<void>(!::read(over[0], &byte, 1));
    ::_exit(0);
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  const pid_t reader = ::fork();
  if (reader == 0) {
    if (::setuid(kNobody) != 0) ::_exit(2);
    int found = 0;
    const iovec here{&found, sizeof found};
    const iovec there{&secret, sizeof secret};
    ::_exit(::process_vm_readv(owner, &here, 1, &there, 1, 0) == sizeof found ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(reader, &status, 0), reader);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2);
  for (const int fd : {ready[0], ready[1], over[0], over[1]}) ::close(fd);
  ::waitpid(owner, nullptr, 0);
  return WEXITSTATUS(status) == 0;
}

// Ranks of one node read each other's memory (PeerMemory).
TEST(CoreDumps, AreForbiddenToWorkersInTheWayThatLeavesTheirMemoryReadable) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  if (!is_read_after([] {})) GTEST_SKIP() << "this machine lets no process read another one";
  EXPECT_TRUE(is_read_after(forbid_core_dumps_of_readable_process));
  EXPECT_FALSE(is_read_after(forbid_core_dumps));
}

}  // namespace
}  // namespace lockstep
