// Parts of chains without sockets: promised answers, and states that are filled while they change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "agent/server/promises.h"
#include "agent/server/row_store.h"
#include "agent/server/rows_state.h"
#include "agent/server/unit_clock.h"
#include "common/base/random.h"

namespace lockstep::server {
namespace {

using optim::OptimizerKind;

TEST(Promises, AreKeptInTheirOrder) {
  Promises promises;
  std::string said;
  const auto add = [&](uint64_t sequence) {
    promises.add(sequence, [&said, sequence](const Status& status) {
      said += (status.ok() ? "" : "!") + std::to_string(sequence);
    });
  };
  for (const uint64_t sequence : {3, 3, 5, 9}) add(sequence);
  promises.keep(2);
  EXPECT_EQ(said, "");
  promises.keep(5);
  EXPECT_EQ(said, "335");
  add(10);
  promises.refuse(unavailable("gone"));
  EXPECT_EQ(said, "335!9!10");
  EXPECT_EQ(promises.size(), 0u);
}

TEST(UnitClock, GoesOnElsewhere) {
  const std::vector<uint32_t> workers = {1, 4};
  const Consistency bounded{.kind = ConsistencyKind::kBoundedStaleness, .staleness = 1};
  UnitClock clock(bounded, workers);
  clock.take_push(4, 0);
  clock.take_push(4, 1);
  clock.take_push(1, 0);
  UnitClock copy(bounded, workers, 7);
  copy.set_state(clock.state());
  EXPECT_EQ(copy.slowest().worker, 1u);
  EXPECT_EQ(copy.slowest().clock, 1u);
  EXPECT_EQ(copy.now(), 2u);
  EXPECT_TRUE(copy.has_pushed(4, 1));
  EXPECT_FALSE(copy.has_pushed(4, 2));
  EXPECT_FALSE(copy.has_pushed(1, 1));
  EXPECT_FALSE(copy.has_pushed(2, 0));
}

// The bytes of a row or range, without what pulls leave.
std::vector<std::string> saved_by(const UnitState& state) {
  std::vector<std::string> pieces;
  const Status saved = state.save([&](std::span<const std::byte> bytes) -> Status {
    pieces.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  });
  EXPECT_TRUE(saved.ok());
  if (pieces.size() == 1) return pieces;
  std::vector<std::string> rows;
  for (size_t i = 0; i + 1 < pieces.size(); i += 2) rows.push_back(pieces[i] + pieces[i + 1]);
  std::ranges::sort(rows);
  return rows;
}

// Copies the next parts; returns whether there are more.
bool fill_more(const UnitState& from, UnitState& to, uint32_t& parts) {
  std::vector<std::byte> bytes;
  const auto saved = from.save_parts(parts, [&](std::span<const std::byte> more) -> Status {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return {};
  });
  EXPECT_TRUE(saved.ok());
  const Status loaded =
      to.load(saved->saved, source_of(bytes), {.holds = [](uint64_t) { return true; }});
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  parts = saved->end;
  to.hold_parts(parts);
  return parts < kStateParts;
}

class Filling : public testing::Test {
 protected:
  // Updates both, and expires rows in both.
  void change(UnitState& original, UnitState& copy) {
    std::vector<uint64_t> keys;
    for (uint64_t key = random_.below(300); key < 30000; key += 1 + random_.below(300)) {
      keys.push_back(key);
    }
    if (original.floats() == kCount) keys.clear();
    std::vector<float> values(keys.empty() ? kCount : keys.size() * original.floats());
    for (float& value : values) value = random_.normal();
    const Gradient gradient{.keys = keys, .values = values};
    for (UnitState* const state : {&original, &copy}) {
      EXPECT_TRUE(state->use(keys, now_).ok());
      state->update({&gradient, 1}, {.learning_rate = 0.1, .now = now_});
    }
    ++now_;
    const std::span<const uint64_t> expired = original.sweep(now_);
    expired_ += expired.size();
    copy.expire(expired);
  }
  static constexpr uint64_t kCount = 500;
  Random random_{5};
  uint64_t now_ = 0;
  size_t expired_ = 0;
};

TEST_F(Filling, GivesRowsThatChangeMeanwhileTheSameBits) {
  const TableSpec spec{
      .name = "user",
      .dim = 40,
      .deviation = 0.1f,
      .optimizer = {.kind = OptimizerKind::kAdamW},
      .life = {.idle_max = 150, .frequency_min = 3, .half_life = 9, .decay = 0.01}};
  RowsState original(spec, {.seed = 3, .table = 0});
  RowsState copy(spec, {.seed = 3, .table = 0});
  copy.hold_parts(0);
  for (int i = 0; i < 300; ++i) change(original, copy);
  EXPECT_EQ(copy.size().rows, 0u);
  uint32_t parts = 0;
  int messages = 1;
  for (; fill_more(original, copy, parts); ++messages) change(original, copy);
  EXPECT_GT(messages, 1);
  for (int i = 0; i < 30; ++i) change(original, copy);
  EXPECT_GT(original.size().rows, 1000u);
  EXPECT_GT(expired_, 0u);
  EXPECT_EQ(saved_by(original), saved_by(copy));
}

TEST_F(Filling, GivesARangeTheSameBits) {
  RangeState original(kCount, {.kind = OptimizerKind::kAdamW});
  RangeState copy(kCount, {.kind = OptimizerKind::kAdamW});
  copy.hold_parts(0);
  for (int i = 0; i < 5; ++i) change(original, copy);
  uint32_t parts = 0;
  EXPECT_FALSE(fill_more(original, copy, parts));
  for (int i = 0; i < 5; ++i) change(original, copy);
  EXPECT_EQ(saved_by(original), saved_by(copy));
}

TEST_F(Filling, OfAPartThatIsTooShortIsRefused) {
  const std::vector<std::byte> few(100);
  RangeState copy(kCount, {.kind = OptimizerKind::kSgd});
  const Status loaded = copy.load({.count = kCount, .updates = 1, .floats = 1}, source_of(few), {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace lockstep::server
