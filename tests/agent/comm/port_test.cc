// How a port handles the other side's bytes, whatever they are and however they arrive.
#include "agent/comm/port.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/comm/shm.h"
#include "tests/agent/comm/memory_link.h"
#include "tests/agent/comm/small_frames.h"

namespace lockstep::comm {
namespace {

using test::kSmallFrames;
using test::MemoryLink;

FrameHeader message(uint64_t sequence, uint64_t bytes) {
  return {.kind = Collective::kSend,
          .type = DataType::kI32,
          .round = 7,
          .sequence = sequence,
          .count = bytes / 4,
          .bytes = static_cast<uint32_t>(bytes),
          .total = bytes};
}

FrameHeader credit(uint64_t sequence, uint64_t allowed) {
  FrameHeader header = message(sequence, 64);
  header.step = kCreditStep;
  header.bytes = 0;
  header.total = allowed;
  return header;
}

// A sequence of frames, each filled with a value of its own.
class Script {
 public:
  Script& add(const FrameHeader& header, int value = 0) {
    const size_t at = bytes_.size();
    const size_t payload_at = at + sizeof header;
    bytes_.resize(payload_at + header.bytes, static_cast<std::byte>(value));
    std::memcpy(&bytes_[at], &header, sizeof header);
    bytes_.resize(bytes_.size() + padding_of(header.bytes));
    return *this;
  }
  Bytes bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct Peer {
  explicit Peer(const Script& script, Port::Options options = {})
      : link(1, script.bytes()), port(&link, options) {}
  MemoryLink link;
  Port port;
};

// Reads a frame to its end while a few bytes arrive at a time; empty if it does not come.
std::vector<std::byte> take(Peer& peer, const FrameHeader& expected, size_t step) {
  std::vector<std::byte> taken;
  for (bool ended = false; !ended;) {
    ended = peer.link.all_arrived();
    peer.link.arrive(step);
    const auto next = peer.port.match_next(expected);
    EXPECT_TRUE(next.ok());
    if (!next.ok() || *next != Port::Next::kMatches) continue;
    std::vector<std::byte> piece(1000);
    const auto got = peer.port.read(piece);
    EXPECT_TRUE(got.ok());
    taken.insert(taken.end(), piece.begin(),
                 piece.begin() + static_cast<std::ptrdiff_t>(got.ok() ? *got : 0));
    if (taken.size() == expected.bytes) return taken;
    ended = ended && *got == 0;
  }
  return {};
}

TEST(Port, TakesAFrameHoweverItsBytesCome) {
  const FrameHeader first = message(1, 100);
  const FrameHeader second = message(2, 4096);
  for (const size_t step :
       {size_t{1}, size_t{7}, size_t{63}, size_t{64}, size_t{65}, size_t{9999}}) {
    Peer peer(Script().add(first, 5).add(second, 6));
    EXPECT_EQ(take(peer, first, step), std::vector<std::byte>(100, std::byte{5})) << step;
    EXPECT_EQ(take(peer, second, step), std::vector<std::byte>(4096, std::byte{6})) << step;
  }
}

struct Wrong {
  std::string what;
  std::function<void(FrameHeader&)> change;
  Code code;
  std::string message;
};

TEST(Port, NamesWhoSentWhatIsNoFrameOfThisRoundAndOperation) {
  const Wrong wrongs[] = {
      {"magic", [](FrameHeader& h) { h.magic ^= 1; }, Code::kCorrupt,
       "rank 1 sent data that is not a frame"},
      {"round", [](FrameHeader& h) { h.round = 6; }, Code::kCorrupt,
       "rank 1 sent a frame of round 6 in round 7"},
      {"more than all", [](FrameHeader& h) { h.total = h.bytes - 1; }, Code::kCorrupt,
       "rank 1 sent an invalid frame: 256 of 255 bytes"},
      {"too long", [](FrameHeader& h) { h.total = h.bytes = (1u << 20) + 1; }, Code::kCorrupt,
       "rank 1 sent an invalid frame: 1048577 of 1048577 bytes"},
      {"another total", [](FrameHeader& h) { h.total = 300; }, Code::kConflict,
       "in send #3 (64 x i32, direct), rank 1 sends 300 bytes, expected 256"},
      {"another step", [](FrameHeader& h) { h.step = 2; }, Code::kConflict,
       "in send #3 (64 x i32, direct), rank 1 sends step 2, expected step 0"},
      {"another type", [](FrameHeader& h) { h.type = DataType::kF64; }, Code::kConflict,
       "in send #3 (64 x i32, direct), rank 1 in send #3 (64 x f64, direct)"},
      {"an unknown type", [](FrameHeader& h) { h.type = static_cast<DataType>(99); },
       Code::kConflict,
       "in send #3 (64 x i32, direct), rank 1 in send #3 (64 x unknown type, direct)"},
  };
  const FrameHeader expected = message(3, 256);
  for (const Wrong& wrong : wrongs) {
    FrameHeader sent = expected;
    wrong.change(sent);
    Peer peer(Script().add(sent));
    peer.link.arrive(kFrameAlign);
    const auto next = peer.port.match_next(expected);
    ASSERT_FALSE(next.ok()) << wrong.what;
    EXPECT_EQ(next.error().code, wrong.code) << wrong.what;
    EXPECT_EQ(next.error().message.find(wrong.message), 0u)
        << wrong.what << ": " << next.error().message;
  }
}

TEST(Port, WhatIsInTheWayIsPutAsideAndTakenLaterEvenWhereItsEndHasNotCome) {
  const FrameHeader first = message(1, 640);
  const FrameHeader second = message(2, 64);
  Peer peer(Script().add(first, 1).add(second, 2));
  peer.link.arrive(kFrameAlign + 101);
  EXPECT_EQ(*peer.port.match_next(second), Port::Next::kOtherOperation);
  EXPECT_TRUE(peer.port.in_the_way());
  EXPECT_TRUE(*peer.port.buffer_frame());
  ASSERT_NE(peer.port.first_buffered_header(), nullptr);
  EXPECT_EQ(*peer.port.first_buffered_header(), first);
  // Only whole elements are available: 100 bytes.
  EXPECT_EQ(*peer.port.match_next(first), Port::Next::kMatches);
  EXPECT_EQ(peer.port.left(), 100u);
  std::vector<std::byte> piece(60);
  EXPECT_EQ(*peer.port.read(piece), 60u);
  peer.link.arrive(9999);
  EXPECT_EQ(*peer.port.match_next(second), Port::Next::kOtherOperation);
  EXPECT_TRUE(*peer.port.buffer_frame());
  EXPECT_EQ(take(peer, second, 1), std::vector<std::byte>(64, std::byte{2}));
  EXPECT_EQ(*peer.port.match_next(first), Port::Next::kMatches);
  EXPECT_EQ(peer.port.left(), 580u);
  std::vector<std::byte> rest(580);
  EXPECT_EQ(*peer.port.read(rest), 580u);
  EXPECT_EQ(rest, std::vector<std::byte>(580, std::byte{1}));
  EXPECT_EQ(peer.port.first_buffered_header(), nullptr);
}

TEST(Port, MoreThanItMayKeepIsAConflictThatNamesWhatIsKept) {
  constexpr size_t kMiB = size_t{1} << 20;
  Script script;
  for (uint64_t i = 1; i <= 3; ++i) script.add(message(i, kMiB));
  Peer peer(script, {.limits = {.window_bytes = kMiB, .buffered_windows_max = 2}});
  peer.link.arrive(9 * kMiB);
  const FrameHeader awaited = message(9, 4);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(*peer.port.match_next(awaited), Port::Next::kOtherOperation);
    EXPECT_TRUE(*peer.port.buffer_frame());
  }
  EXPECT_EQ(*peer.port.match_next(awaited), Port::Next::kOtherOperation);
  const auto full = peer.port.buffer_frame();
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, Code::kConflict);
  EXPECT_EQ(
      full.error().message,
      "blocked by 2049 KiB from rank 1 that no operation here can take yet (send #1 (262144 x "
      "i32, direct) and others); the limit is 2064 KiB");
  // Taking data makes room.
  EXPECT_EQ(*peer.port.match_next(message(1, kMiB)), Port::Next::kMatches);
  std::vector<std::byte> whole(kMiB);
  EXPECT_EQ(*peer.port.read(whole), kMiB);
  EXPECT_TRUE(*peer.port.buffer_frame());
}

// The promise of communicator.h, for any window.
TEST(Port, KeepsTheWindowsOfThirtyTwoOperationsAndASmallFrameBehindThem) {
  const CommLimits limits = kSmallFrames;
  const uint64_t frames = limits.window_bytes / limits.frame_bytes_max;
  Script script;
  for (uint64_t i = 1; i <= 32; ++i) {
    FrameHeader header = message(i, limits.frame_bytes_max);
    header.total = 9 * limits.window_bytes;
    for (uint64_t frame = 0; frame < frames; ++frame) script.add(header, static_cast<int>(i));
  }
  const FrameHeader small = message(99, 8);
  Peer peer(script.add(small, 77), {.limits = limits});
  peer.link.arrive(script.bytes().size());
  for (uint64_t frame = 0; frame < 32 * frames; ++frame) {
    EXPECT_EQ(*peer.port.match_next(small), Port::Next::kOtherOperation);
    ASSERT_TRUE(peer.port.buffer_frame().ok()) << frame;
  }
  EXPECT_EQ(take(peer, small, 1), std::vector<std::byte>(8, std::byte{77}));
  EXPECT_EQ(*peer.port.match_next(message(100, 8)), Port::Next::kNone);
}

// Frames without payload cost memory too.
TEST(Port, KeepsNoMoreFramesWithoutPayloadThanItHasRoomFor) {
  const CommLimits limits = kSmallFrames;
  const size_t most = buffered_bytes_max(limits) / kBufferedFrameOverheadBytes;
  Script script;
  for (uint64_t i = 1; i <= most + 1; ++i) script.add(message(i, 0));
  Peer peer(script, {.limits = limits});
  peer.link.arrive(script.bytes().size());
  for (size_t frame = 0; frame < most; ++frame) ASSERT_TRUE(peer.port.buffer_frame().ok()) << frame;
  EXPECT_EQ(peer.port.buffer_frame().error().code, Code::kConflict);
}

TEST(Port, FindsAnyOfManyThatWerePutAsideWithoutGoingThroughAll) {
  constexpr uint64_t kFrames = 200'000;
  Script script;
  for (uint64_t i = 1; i <= kFrames; ++i) script.add(message(i, 0));
  Peer peer{script};
  peer.link.arrive(script.bytes().size());
  for (uint64_t i = 0; i < kFrames; ++i) ASSERT_TRUE(*peer.port.buffer_frame());
  // Quadratic cost, 20 thousand million steps, would exceed the test's time limit.
  for (uint64_t i = kFrames; i > 0; --i) {
    ASSERT_EQ(*peer.port.match_next(message(i, 0)), Port::Next::kMatches);
    ASSERT_TRUE(peer.port.finish_empty().ok());
  }
  EXPECT_EQ(peer.port.first_buffered_header(), nullptr);
}

TEST(Port, TakesTheFramesOfEveryRowInTheirOrderThoughRowsAreMixed) {
  Script script;
  FrameHeader collective{.kind = Collective::kAllReduce,
                         .type = DataType::kI32,
                         .round = 7,
                         .sequence = 1,
                         .bytes = 64,
                         .total = 192};
  FrameHeader send = message(1, 192);
  send.bytes = 64;
  for (int i = 0; i < 3; ++i) script.add(send, i).add(collective, 10 + i);
  Peer peer{script};
  peer.link.arrive(script.bytes().size());
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(*peer.port.buffer_frame());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(take(peer, collective, 1), std::vector<std::byte>(64, std::byte(10 + i)));
  }
  // The same group is in another collective.
  ASSERT_EQ(*peer.port.match_next(send), Port::Next::kMatches);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(take(peer, send, 1), std::vector<std::byte>(64, std::byte(i)));
  }
}

TEST(Port, CreditsAreFoundBetweenFramesAndTheLastOneCounts) {
  const FrameHeader frame = message(1, 64);
  Peer peer(Script().add(credit(5, 1000)).add(credit(6, 77)).add(frame, 3).add(credit(5, 2000)));
  EXPECT_EQ(*peer.port.credit(message(5, 64), 8), 8u);
  peer.link.arrive(3 * kFrameAlign);
  EXPECT_EQ(*peer.port.credit(message(5, 64), 8), 1000u);
  EXPECT_TRUE(peer.port.in_the_way());
  EXPECT_EQ(take(peer, frame, 64), std::vector<std::byte>(64, std::byte{3}));
  peer.link.arrive(9999);
  EXPECT_EQ(*peer.port.credit(message(5, 64), 1000), 2000u);
  EXPECT_EQ(*peer.port.credit(message(6, 64), 8), 77u);
}

TEST(Port, CreditsThatCantBeAreRefused) {
  FrameHeader with_payload = credit(5, 1000);
  with_payload.bytes = 64;
  Peer one(Script().add(with_payload));
  one.link.arrive(9999);
  EXPECT_EQ(one.port.match_next(message(1, 64)).error().message,
            "rank 1 sent a credit with a payload");
  FrameHeader other_round = credit(5, 1000);
  other_round.round = 6;
  Peer two(Script().add(other_round));
  two.link.arrive(9999);
  EXPECT_EQ(two.port.credit(message(5, 64), 8).error().code, Code::kCorrupt);
  Script many;
  for (uint64_t i = 0; i < 5000; ++i) many.add(credit(i, 1000));
  Peer three(many);
  three.link.arrive(many.bytes().size());
  EXPECT_EQ(three.port.match_next(message(1, 64)).error().message,
            "rank 1 sent credits for operations that are not running");
  // Nor is it a frame in front.
  FrameHeader garbage = message(1, 64);
  garbage.magic = 1;
  Peer four(Script().add(garbage));
  four.link.arrive(9999);
  EXPECT_EQ(four.port.credit(message(5, 64), 8).error().code, Code::kCorrupt);
}

TEST(Port, SendersTakeTurnsInTheOrderInWhichTheyAsked) {
  Peer peer{Script()};
  Port& port = peer.port;
  const int a = 0;
  const int b = 0;
  const int c = 0;
  EXPECT_TRUE(port.may_begin(&a));
  port.begin(&a, message(1, 0), nullptr);
  EXPECT_FALSE(port.may_begin(&b));
  EXPECT_FALSE(port.may_begin(&c));
  EXPECT_FALSE(port.may_begin(&b));
  EXPECT_TRUE(*port.push());
  EXPECT_FALSE(port.may_begin(&a));
  EXPECT_FALSE(port.may_begin(&c));
  EXPECT_TRUE(port.may_begin(&b));
  port.begin(&b, message(2, 0), nullptr);
  EXPECT_TRUE(*port.push());
  EXPECT_TRUE(port.may_begin(&c));
  EXPECT_TRUE(port.may_begin(&a));
}

TEST(ShmLink, ADamagedRingIsNamedWithTheRankAtItsOtherEnd) {
  const int memory = ::memfd_create("ring", MFD_CLOEXEC);
  const auto region = ShmRegion::attach({.fd = memory, .ranks = 2, .tag = 1});
  ASSERT_TRUE(region.ok());
  ShmLink link(*region, {.peer = 5, .local_rank = 0, .local_peer = 1, .bell = [] {}});
  const size_t bytes = shm_bytes(2);
  void* all = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  ASSERT_NE(all, MAP_FAILED);
  std::memset(all, 0x77, bytes);
  const auto seen = link.peek({.at_least = 1, .at_most = 1});
  ASSERT_FALSE(seen.ok());
  EXPECT_EQ(seen.error().code, Code::kCorrupt);
  EXPECT_EQ(seen.error().message, "the shared ring from rank 5 is damaged");
  const auto taken = link.write({std::as_bytes(std::span("abc"))});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().message, "the shared ring to rank 5 is damaged");
  ::munmap(all, bytes);
  ::close(memory);
}

}  // namespace
}  // namespace lockstep::comm
