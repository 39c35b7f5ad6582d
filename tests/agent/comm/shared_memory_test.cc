// The memory that the ranks of a node share.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "agent/comm/make_communicator.h"
#include "agent/comm/shm.h"
#include "agent/comm/socket.h"

namespace lockstep::comm {
namespace {

TEST(SharedMemory, NobodyCanShrinkItUnderTheRanks) {
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto first = ShmRegion::attach({.fd = memory.get(), .ranks = 2, .tag = 7});
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto second = ShmRegion::attach({.fd = memory.get(), .ranks = 2, .tag = 7});
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(::ftruncate(memory.get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  // Other memory that its ranks share comes after it.
  EXPECT_EQ(::ftruncate(memory.get(), static_cast<off_t>(2 * shm_bytes(2))), 0);
  (*first)->veto_loans(ShmRegion::LoanVeto::kSlow);
  EXPECT_EQ((*second)->loan_veto(), ShmRegion::LoanVeto::kSlow);
}

TEST(SharedMemory, OfAnOlderAgentThatDoesNotAllowSealsServesAsBefore) {
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  for (int rank = 0; rank < 2; ++rank) {
    const auto region = ShmRegion::attach({.fd = memory.get(), .ranks = 2, .tag = 7});
    EXPECT_TRUE(region.ok()) << region.error().message;
  }
}

}  // namespace
}  // namespace lockstep::comm
