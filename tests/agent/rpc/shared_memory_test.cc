#include "agent/rpc/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace lockstep::rpc {
namespace {

uint64_t self() {
  return static_cast<uint64_t>(::getpid());
}

TEST(SharedMemory, ShowsAPeerWhatIsWritten) {
  const auto memory = SharedMemory::create(100'000);
  ASSERT_TRUE(memory.ok());
  std::memcpy((*memory)->memory().data() + 70'000, "hello", 5);
  const auto segment = PeerSegment::map(self(), (*memory)->notice());
  ASSERT_TRUE(segment.ok()) << segment.error().message;
  const auto bytes = segment->at(70'000, 5);
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(std::memcmp(bytes->data(), "hello", 5), 0);
}

TEST(SharedMemory, HasNothingOutside) {
  const auto memory = SharedMemory::create(4096);
  ASSERT_TRUE(memory.ok());
  const auto segment = PeerSegment::map(self(), (*memory)->notice());
  ASSERT_TRUE(segment.ok());
  EXPECT_TRUE(segment->at(0, 4096).has_value());
  EXPECT_TRUE(segment->at(4096, 0).has_value());
  EXPECT_FALSE(segment->at(1, 4096).has_value());
  EXPECT_FALSE(segment->at(UINT64_MAX, 2).has_value());
  EXPECT_FALSE(segment->at(2, UINT64_MAX).has_value());
  const Bytes whole = (*memory)->memory();
  EXPECT_EQ((*memory)->offset_of(whole.subspan(7, 9)), 7u);
  const std::byte elsewhere{};
  EXPECT_FALSE((*memory)->offset_of(std::span(&elsewhere, 1)).has_value());
}

TEST(SharedMemory, TellsThatALoanHasEnded) {
  const auto memory = SharedMemory::create(4096);
  ASSERT_TRUE(memory.ok());
  const auto segment = PeerSegment::map(self(), (*memory)->notice());
  ASSERT_TRUE(segment.ok());
  const auto first = (*memory)->take_word();
  const auto second = (*memory)->take_word();
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(segment->still_lent(first->index, first->value));
  (*memory)->give_back(*first);
  EXPECT_FALSE(segment->still_lent(first->index, first->value));
  EXPECT_TRUE(segment->still_lent(second->index, second->value));
  EXPECT_FALSE(segment->still_lent(1u << 20, second->value));
  EXPECT_FALSE(segment->still_lent(first->index, 0));
}

TEST(SharedMemory, LendsAsOftenAsItHasWords) {
  const auto memory = SharedMemory::create(4096);
  ASSERT_TRUE(memory.ok());
  std::vector<SharedMemory::Word> words;
  while (const auto word = (*memory)->take_word()) words.push_back(*word);
  EXPECT_EQ(words.size(), 1024u);
  (*memory)->give_back(words[500]);
  const auto word = (*memory)->take_word();
  ASSERT_TRUE(word.has_value());
  EXPECT_NE(word->value, words[500].value);
}

TEST(SharedMemory, IsNotMappedIfItIsSomethingElse) {
  const auto memory = SharedMemory::create(4096);
  ASSERT_TRUE(memory.ok());
  const SegmentNotice right = (*memory)->notice();
  SegmentNotice wrong = right;
  wrong.token[3] ^= 1;
  EXPECT_EQ(PeerSegment::map(self(), wrong).error().code, Code::kUnavailable);
  wrong = right;
  wrong.bytes += 4096;
  EXPECT_EQ(PeerSegment::map(self(), wrong).error().code, Code::kUnavailable);
  wrong = right;
  wrong.fd = 0;
  EXPECT_FALSE(PeerSegment::map(self(), wrong).ok());
  wrong.fd = -5;
  EXPECT_FALSE(PeerSegment::map(self(), wrong).ok());
  EXPECT_FALSE(PeerSegment::map(uint64_t{1} << 40, right).ok());
}

// Memory that its owner can shrink would end the process that reads it.
TEST(SharedMemory, IsNotMappedIfItCanShrink) {
  const int fd = ::memfd_create("lockstep-rpc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, 1 << 20), 0);
  const auto mapped = PeerSegment::map(self(), {.bytes = 1 << 20, .fd = fd});
  ASSERT_FALSE(mapped.ok());
  EXPECT_NE(mapped.error().message.find("it could shrink"), std::string::npos);
  ::close(fd);
}

}  // namespace
}  // namespace lockstep::rpc
