// Operations on ports, driven step by step from both sides.
#include "agent/comm/runner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "agent/comm/shm.h"
#include "tests/agent/comm/memory_link.h"
#include "tests/agent/comm/one_copy.h"
#include "tests/agent/comm/small_frames.h"

namespace lockstep::comm {
namespace {

using test::MemoryLink;

// One of two ranks, with a link to the other.
class Rank {
 public:
  Rank(int rank, Link* link, const CommLimits& limits = {}) : rank_(rank), runner_(ports_, limits) {
    for (int peer = 0; peer < 2; ++peer) {
      ports_.emplace_back(peer == rank ? nullptr : link, Port::Options{.limits = limits});
    }
    group_ = std::make_shared<Group>();
    group_->ranks = {0, 1};
    group_->rank = rank;
  }

  // Begins the `sequence`-th message to or from the other rank.
  std::unique_ptr<Operation> begin(Collective kind, uint64_t sequence,
                                   std::vector<int32_t>& values) const {
    auto operation = std::make_unique<Operation>();
    auto* data = reinterpret_cast<std::byte*>(values.data());
    operation->begin({.group = group_,
                      .task = {.kind = kind,
                               .algorithm = Algorithm::kDirect,
                               .rank = rank_,
                               .size = 2,
                               .root = 1 - rank_,
                               .count = static_cast<int64_t>(values.size()),
                               .type = DataType::kI32},
                      .input = data,
                      .output = data});
    operation->header.round = 7;
    operation->header.sequence = sequence;
    return operation;
  }
  Result<bool> step(Operation& operation) {
    wait_reasons_.clear();
    return runner_.step(operation, wait_reasons_);
  }
  Port& port() { return ports_[static_cast<size_t>(1 - rank_)]; }
  Traffic traffic() const { return runner_.traffic(); }

 private:
  int rank_;
  std::vector<Port> ports_;
  Runner runner_;
  std::shared_ptr<Group> group_;
  std::vector<WaitReason> wait_reasons_;
};

ShmLink link_of(const std::shared_ptr<ShmRegion>& region, int rank) {
  return ShmLink(region,
                 {.peer = 1 - rank, .local_rank = rank, .local_peer = 1 - rank, .bell = [] {}});
}

std::vector<int32_t> numbers(size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i * 7);
  return values;
}

void expect_window_kept(const CommLimits& limits) {
  const auto region = *ShmRegion::anonymous(2);
  ShmLink from = link_of(region, 0);
  ShmLink to = link_of(region, 1);
  Rank sender(0, &from, limits);
  Rank receiver(1, &to, limits);
  // Not a whole number of windows, pieces or lines.
  std::vector<int32_t> going = numbers(3 * limits.window_bytes / 4 + 12'345);
  std::vector<int32_t> coming(going.size());
  const auto send = sender.begin(Collective::kSend, 1, going);
  // Puts everything aside that arrives.
  for (bool moves = true; moves;) {
    moves = *sender.step(*send);
    moves = *receiver.port().buffer_frame() || moves;
  }
  EXPECT_EQ(sender.traffic().bytes_sent, limits.window_bytes);
  const auto receive = receiver.begin(Collective::kReceive, 1, coming);
  for (bool moves = true; moves && !receive->plan().finished();) {
    moves = *receiver.step(*receive);
    moves = *sender.step(*send) || moves;
    EXPECT_LE(sender.traffic().bytes_sent, receiver.traffic().bytes_received + limits.window_bytes);
  }
  EXPECT_TRUE(send->plan().finished());
  ASSERT_TRUE(receive->plan().finished());
  EXPECT_EQ(coming, going);
  EXPECT_EQ(receiver.traffic().bytes_sent, 0u);
}

TEST(Runner, GoesNoFurtherThanTheWindowBeforeTheOtherSideTakesAndThenToTheEnd) {
  expect_window_kept({});
  expect_window_kept(test::kSmallFrames);
  expect_window_kept({.window_bytes = 128, .frame_bytes_max = 64});
}

// Returns the headers of the frames in a stream.
std::vector<FrameHeader> headers_of(Bytes stream) {
  std::vector<FrameHeader> headers;
  while (!stream.empty()) {
    FrameHeader header;
    std::memcpy(&header, stream.data(), sizeof header);
    headers.push_back(header);
    stream = stream.subspan(kFrameAlign + header.bytes + padding_of(header.bytes));
  }
  return headers;
}

TEST(Runner, ASmallMessageWaitsForAFrameOfALargeOneAtMost) {
  MemoryLink link(1, {});
  Rank sender(0, &link);
  std::vector<int32_t> large = numbers(CommLimits().window_bytes / 4);
  std::vector<int32_t> other = large;
  std::vector<int32_t> small = numbers(3);
  const std::array operations = {sender.begin(Collective::kSend, 1, large),
                                 sender.begin(Collective::kSend, 2, other),
                                 sender.begin(Collective::kSend, 3, small)};
  // All of them start while another sender's frame is on its way.
  const int somebody = 0;
  sender.port().begin(&somebody, {}, nullptr);
  for (const auto& operation : operations) EXPECT_FALSE(*sender.step(*operation));
  ASSERT_TRUE(sender.port().push().ok());
  for (bool finished = false; !finished;) {
    finished = true;
    for (const auto& operation : operations) {
      if (operation->plan().finished()) continue;
      ASSERT_TRUE(sender.step(*operation).ok());
      finished = finished && operation->plan().finished();
    }
  }
  std::vector<uint64_t> order;
  for (const FrameHeader& header : headers_of(link.heard())) order.push_back(header.sequence);
  ASSERT_EQ(order.size(), 1u + 2 * CommLimits().window_bytes / CommLimits().frame_bytes_max + 1);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(order[i], i);
  EXPECT_NE(order[4], order[5]);
}

TEST(Runner, BelowTheWindowNothingGoesBack) {
  const auto region = *ShmRegion::anonymous(2);
  ShmLink from = link_of(region, 0);
  ShmLink to = link_of(region, 1);
  Rank sender(0, &from);
  Rank receiver(1, &to);
  std::vector<int32_t> going = numbers(CommLimits().window_bytes / 4);
  std::vector<int32_t> coming(going.size());
  const auto send = sender.begin(Collective::kSend, 1, going);
  const auto receive = receiver.begin(Collective::kReceive, 1, coming);
  while (!receive->plan().finished()) {
    ASSERT_TRUE(sender.step(*send).ok());
    ASSERT_TRUE(receiver.step(*receive).ok());
  }
  EXPECT_EQ(coming, going);
  EXPECT_TRUE(from.peek({.at_least = 1, .at_most = 1})->empty());
}

// A sender that ignores credits.
TEST(Runner, MoreThanWasAllowedIsNamed) {
  const CommLimits limits = test::kSmallFrames;
  const uint64_t all = 2 * limits.window_bytes;
  FrameHeader header{.kind = Collective::kSend,
                     .type = DataType::kI32,
                     .round = 7,
                     .sequence = 1,
                     .count = all / 4,
                     .bytes = static_cast<uint32_t>(limits.frame_bytes_max),
                     .total = all};
  for (const bool puts_aside : {false, true}) {
    std::vector<std::byte> script;
    for (uint64_t sent = 0; sent < all; sent += header.bytes) {
      const size_t at = script.size();
      script.resize(at + sizeof header + header.bytes, std::byte{1});
      std::memcpy(&script[at], &header, sizeof header);
    }
    MemoryLink link(1, script);
    link.arrive(script.size());
    Rank receiver(0, &link, limits);
    // Whatever credits this rank sends, the data has arrived too early.
    for (bool moves = puts_aside; moves;) moves = *receiver.port().buffer_frame();
    std::vector<int32_t> coming(all / 4);
    const auto receive = receiver.begin(Collective::kReceive, 1, coming);
    const int somebody = 0;
    receiver.port().begin(&somebody, {}, nullptr);  // on its way forever, so no credit goes out
    Result<bool> moved = true;
    while (moved.ok() && *moved) moved = receiver.step(*receive);
    ASSERT_FALSE(moved.ok());
    EXPECT_EQ(moved.error().code, Code::kCorrupt);
    EXPECT_EQ(moved.error().message, "rank 1 sent more than its credit allows");
    EXPECT_EQ(receiver.traffic().bytes_received, limits.window_bytes);
  }
}

TEST(Runner, MoreThanWasAnnouncedIsNamed) {
  std::vector<int32_t> coming(32);
  FrameHeader header{.kind = Collective::kSend,
                     .type = DataType::kI32,
                     .round = 7,
                     .sequence = 1,
                     .count = 32,
                     .total = 128};
  std::vector<std::byte> script;
  for (const uint32_t bytes : {64u, 128u}) {
    header.bytes = bytes;
    const size_t at = script.size();
    script.resize(at + sizeof header + bytes, std::byte{1});
    std::memcpy(&script[at], &header, sizeof header);
  }
  MemoryLink link(1, script);
  link.arrive(script.size());
  Rank receiver(0, &link);
  const auto receive = receiver.begin(Collective::kReceive, 1, coming);
  const auto moved = receiver.step(*receive);
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.error().code, Code::kCorrupt);
  EXPECT_EQ(moved.error().message, "rank 1 sent more than it announced");
}

// Lets `from` lend to `to`.
void let_lend(ShmLink& from, ShmLink& to) {
  to.loans()->attach_peer(test::own_memory());
  from.loans()->enable();
}

constexpr CommLimits kLending = test::Limits{};
constexpr size_t kLent = (size_t{3} << 20) / sizeof(int32_t) + 77;

TEST(Runner, ALoanThatIsTakenBackWhileItIsReadIsNoResult) {
  SKIP_WITHOUT_ONE_COPY();
  const auto region = *ShmRegion::anonymous(2);
  ShmLink from = link_of(region, 0);
  ShmLink to = link_of(region, 1);
  let_lend(from, to);
  Rank sender(0, &from, kLending);
  Rank receiver(1, &to, kLending);
  std::vector<int32_t> going = numbers(kLent);
  std::vector<int32_t> coming(kLent);
  const auto send = sender.begin(Collective::kSend, 1, going);
  const auto receive = receiver.begin(Collective::kReceive, 1, coming);
  ASSERT_TRUE(*sender.step(*send));
  ASSERT_TRUE(*receiver.step(*receive));
  EXPECT_GT(receiver.traffic().bytes_received, 0u);
  ASSERT_FALSE(receive->plan().finished());
  from.loans()->revoke_all();
  Result<bool> moved = true;
  while (moved.ok() && !receive->plan().finished()) moved = receiver.step(*receive);
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.error().code, Code::kUnavailable);
}

TEST(Runner, ALoanThatIsPutAsideIsReturnedBeforeItsReceiveIsCalled) {
  SKIP_WITHOUT_ONE_COPY();
  const auto region = *ShmRegion::anonymous(2);
  ShmLink from = link_of(region, 0);
  ShmLink to = link_of(region, 1);
  let_lend(from, to);
  Rank sender(0, &from, kLending);
  Rank receiver(1, &to, kLending);
  std::vector<int32_t> going = numbers(kLent);
  std::vector<int32_t> coming(kLent);
  const auto send = sender.begin(Collective::kSend, 1, going);
  ASSERT_TRUE(*sender.step(*send));
  EXPECT_FALSE(send->plan().finished());
  for (bool moves = true; moves;) moves = *receiver.port().buffer_frame();
  ASSERT_TRUE(*sender.step(*send));
  ASSERT_TRUE(send->plan().finished());
  EXPECT_EQ(sender.traffic().bytes_lent, kLent * sizeof(int32_t));
  std::fill(going.begin(), going.end(), 0);
  const auto receive = receiver.begin(Collective::kReceive, 1, coming);
  while (!receive->plan().finished()) ASSERT_TRUE(*receiver.step(*receive));
  EXPECT_EQ(coming, numbers(kLent));
}

TEST(Runner, ALoanThatTheReceiverCantReadComesThroughTheLink) {
  SKIP_WITHOUT_ONE_COPY();
  for (const bool puts_aside : {false, true}) {
    const auto region = *ShmRegion::anonymous(2);
    ShmLink from = link_of(region, 0);
    ShmLink to = link_of(region, 1);
    from.loans()->enable();
    Rank sender(0, &from, kLending);
    Rank receiver(1, &to, kLending);
    std::vector<int32_t> going = numbers(kLent);
    std::vector<int32_t> coming(kLent);
    const auto send = sender.begin(Collective::kSend, 1, going);
    const auto receive = receiver.begin(Collective::kReceive, 1, coming);
    ASSERT_TRUE(*sender.step(*send));
    EXPECT_EQ(sender.traffic().bytes_sent, 0u);
    for (bool moves = puts_aside; moves;) moves = *receiver.port().buffer_frame();
    for (bool moves = true; moves && !receive->plan().finished();) {
      moves = *receiver.step(*receive);
      moves = *sender.step(*send) || moves;
    }
    EXPECT_TRUE(send->plan().finished());
    EXPECT_EQ(coming, going);
    EXPECT_EQ(sender.traffic().bytes_sent, kLent * sizeof(int32_t));
    EXPECT_EQ(sender.traffic().bytes_lent, 0u);
  }
}

}  // namespace
}  // namespace lockstep::comm
