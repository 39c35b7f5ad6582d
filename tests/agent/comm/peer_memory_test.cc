// Another process's memory can be read while it lives, and no other process's instead.
#include "agent/comm/peer_memory.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/agent/comm/one_copy.h"

namespace lockstep::comm {
namespace {

// The child has a copy of its parent's memory, including the mark.
TEST(PeerMemory, IsReadWhileTheProcessLivesAndNotAfter) {
  SKIP_WITHOUT_ONE_COPY();
  const auto here = std::vector<std::byte>(5000, std::byte{4});
  const auto mark = std::make_unique<const uint64_t>(77);
  const auto address_of = [](const void* place) { return reinterpret_cast<uintptr_t>(place); };
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (;;) ::pause();
  }
  const auto memory = PeerMemory::find(pid, {address_of(mark.get()), *mark});
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  std::vector<std::byte> into(here.size());
  EXPECT_EQ(memory->read(address_of(here.data()), into).value(), into.size());
  EXPECT_EQ(into, here);
  ::kill(pid, SIGKILL);
  // The process is a zombie until it is waited for, and gone afterwards.
  for (const bool is_gone : {false, true}) {
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | (is_gone ? 0 : WNOWAIT)), 0);
    EXPECT_EQ(memory->read(address_of(here.data()), into).value(), 0u);
  }
  EXPECT_FALSE(PeerMemory::find(pid, {address_of(mark.get()), *mark}).ok());
}

TEST(PeerMemory, OfAnotherProcessInItsPlaceIsNotRead) {
  SKIP_WITHOUT_ONE_COPY();
  uint64_t mark = 77;
  const PeerMemory::Mark known{reinterpret_cast<uintptr_t>(&mark), 77};
  const auto memory = PeerMemory::find(::getpid(), known);
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  mark = 78;
  std::vector<std::byte> into(100);
  const auto read = memory->read(reinterpret_cast<uintptr_t>(into.data()), into);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kUnavailable);
  EXPECT_FALSE(PeerMemory::find(::getpid(), known).ok());
}

TEST(PeerMemory, IsReadWhileSignalsAreHandled) {
  SKIP_WITHOUT_ONE_COPY();
  const PeerMemory memory = test::own_memory();
  static std::atomic<int> handled;
  handled = 0;
  struct sigaction count {};
  struct sigaction before {};
  count.sa_handler = [](int) { ++handled; };
  ASSERT_EQ(::sigaction(SIGUSR1, &count, &before), 0);
  std::atomic<bool> stops = false;
  std::thread sender([&, reader = ::pthread_self()] {
    while (!stops) ::pthread_kill(reader, SIGUSR1);
  });
  const auto here = std::vector<std::byte>(64, std::byte{5});
  std::vector<std::byte> into(here.size());
  Result<size_t> read = into.size();
  while (read.ok() && *read == into.size() && handled < 1'000) {
    read = memory.read(reinterpret_cast<uintptr_t>(here.data()), into);
  }
  stops = true;
  sender.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, into.size());
  EXPECT_EQ(into, here);
}

}  // namespace
}  // namespace lockstep::comm
