#include "tests/agent/comm/one_copy.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace lockstep::test {
namespace {

const uint64_t kMark = 0x1234'5678'9abc'def0;

comm::PeerMemory::Mark mark() {
  return {.address = reinterpret_cast<uintptr_t>(&kMark), .value = kMark};
}

bool try_it() {
  const pid_t lender = ::fork();
  if (lender == 0) {
    for (;;) ::pause();
  }
  const pid_t reader = ::fork();
  if (reader == 0) ::_exit(comm::PeerMemory::find(lender, mark()).ok() ? 0 : 1);
  int status = 1;
  ::waitpid(reader, &status, 0);
  ::kill(lender, SIGKILL);
  ::waitpid(lender, nullptr, 0);
  return status == 0;
}

}  // namespace

comm::PeerMemory own_memory() {
  return comm::PeerMemory::find(::getpid(), mark()).value();
}

bool ranks_can_read_each_other() {
  static const bool can = try_it();
  return can;
}

}  // namespace lockstep::test
