#include "agent/rpc/call_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/base/random.h"

namespace lockstep::rpc {
namespace {

using Seen = CallMemory::Seen;

Seen begin(CallMemory& memory, CallId id, uint64_t floor = 1) {
  const Result<Seen> seen = memory.begin(id, floor);
  EXPECT_TRUE(seen.ok());
  return seen.ok() ? *seen : Seen::kFinished;
}

TEST(CallMemory, BeginsACallOnceAndKeepsItsOutcome) {
  CallMemory memory;
  const CallId id{.client = 5, .number = 1};
  EXPECT_EQ(begin(memory, id), Seen::kNew);
  EXPECT_EQ(begin(memory, id), Seen::kRunning);
  EXPECT_EQ(memory.outcome(id), nullptr);
  memory.finish(id, {.code = 0, .head_bytes = 2, .bytes = "hello"});
  EXPECT_EQ(begin(memory, id), Seen::kDone);
  EXPECT_EQ(memory.outcome(id)->bytes, "hello");
  memory.finish(id, {.bytes = "other"});
  EXPECT_EQ(memory.outcome(id)->bytes, "hello");
}

TEST(CallMemory, ForgetsWhatIsFinishedAndNeverBeginsItAgain) {
  CallMemory memory;
  for (uint64_t number = 1; number <= 10; ++number) {
    begin(memory, {5, number});
    memory.finish({5, number}, {.bytes = "abc"});
  }
  EXPECT_EQ(memory.bytes(), 30u);
  EXPECT_EQ(begin(memory, {5, 11}, 9), Seen::kNew);
  EXPECT_EQ(memory.bytes(), 6u);
  EXPECT_EQ(begin(memory, {5, 3}), Seen::kFinished);
  EXPECT_EQ(begin(memory, {5, 9}), Seen::kDone);
  EXPECT_EQ(begin(memory, {6, 3}), Seen::kNew);
  EXPECT_EQ(begin(memory, {5, 0}), Seen::kFinished);
}

TEST(CallMemory, BeginsACallAgainThatWasUndone) {
  CallMemory memory;
  begin(memory, {5, 1});
  memory.undo({5, 1});
  EXPECT_EQ(begin(memory, {5, 1}), Seen::kNew);
  memory.finish({5, 1}, {});
  memory.undo({5, 1});
  EXPECT_EQ(begin(memory, {5, 1}), Seen::kDone);
}

TEST(CallMemory, BoundsWhatAClientCanMakeItKeep) {
  CallMemory memory({.clients_max = 2, .bytes_max = 100});
  EXPECT_EQ(memory.begin({5, 1 + kUnfinishedMax}, 1).error().code, Code::kCorrupt);
  EXPECT_EQ(begin(memory, {5, kUnfinishedMax}, 1), Seen::kNew);
  memory.finish({5, kUnfinishedMax}, {.bytes = std::string(101, 'x')});
  EXPECT_EQ(memory.begin({5, 7}, 1).error().code, Code::kUnavailable);
  EXPECT_EQ(begin(memory, {6, 1}), Seen::kNew);
  EXPECT_EQ(memory.begin({7, 1}, 1).error().code, Code::kUnavailable);
  memory.forget_client(6);
  EXPECT_EQ(begin(memory, {7, 1}), Seen::kNew);
}

TEST(CallMemory, MovesToAReplica) {
  CallMemory primary;
  for (uint64_t number = 1; number <= 6; ++number) begin(primary, {5, number}, 3);
  for (uint64_t number = 3; number <= 5; ++number) {
    primary.finish({5, number}, {.code = 2, .bytes = "no " + std::to_string(number)});
  }
  begin(primary, {9, 1});
  CallMemory replica;
  begin(replica, {5, 4});
  replica.finish({5, 4}, {.bytes = "mine"});
  const auto clients = replica.import_from(primary.export_all());
  ASSERT_TRUE(clients.ok());
  EXPECT_EQ(std::set<uint64_t>(clients->begin(), clients->end()), (std::set<uint64_t>{5, 9}));
  EXPECT_EQ(begin(replica, {5, 2}), Seen::kFinished);
  EXPECT_EQ(begin(replica, {5, 3}), Seen::kDone);
  EXPECT_EQ(replica.outcome({5, 3})->bytes, "no 3");
  EXPECT_EQ(replica.outcome({5, 4})->bytes, "mine");
  EXPECT_EQ(begin(replica, {5, 6}), Seen::kNew);
  EXPECT_EQ(begin(replica, {9, 1}), Seen::kNew);
}

TEST(CallMemory, RefusesEveryDamagedExport) {
  CallMemory primary;
  begin(primary, {5, 1});
  primary.finish({5, 1}, {.head_bytes = 3, .bytes = "hello"});
  const std::string whole = primary.export_all();
  for (size_t at = 0; at < whole.size(); ++at) {
    CallMemory replica;
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    EXPECT_EQ(replica.import_from(damaged).error().code, Code::kCorrupt) << at;
    EXPECT_EQ(replica.import_from(whole.substr(0, at)).error().code, Code::kCorrupt) << at;
    EXPECT_EQ(replica.clients(), 0u);
  }
}

// Compares with a model: each id is begun once, in any order of repetitions and floors.
TEST(CallMemory, ExecutesEachCallOfAnyHistoryOnce) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    CallMemory memory;
    std::map<uint64_t, int> begun;
    uint64_t floor = 1;
    uint64_t next = 1;
    for (int step = 0; step < 3000; ++step) {
      if (next - floor < 50) ++next;
      const uint64_t number = 1 + random.below(next - 1);
      const Seen seen = begin(memory, {1, number}, floor);
      EXPECT_EQ(seen == Seen::kFinished, number < floor);
      begun[number] += seen == Seen::kNew ? 1 : 0;
      if (random.below(2) == 0) memory.finish({1, number}, {.bytes = "x"});
      if (random.below(4) == 0) floor += random.below(next - floor);
      EXPECT_LE(memory.bytes(), 60u);
    }
    for (const auto& [number, times] : begun) EXPECT_LE(times, 1) << number;
  }
}

}  // namespace
}  // namespace lockstep::rpc
