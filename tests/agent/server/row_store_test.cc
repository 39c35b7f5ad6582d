// Rows: their beginning, use, decay and end, and their memory.
#include "agent/server/row_store.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/base/random.h"

namespace lockstep::server {
namespace {

TableSpec table(uint32_t dim = 3) {
  return {.name = "user",
          .dim = dim,
          .deviation = 0.1f,
          .optimizer = {.kind = optim::OptimizerKind::kAdagrad}};
}

std::vector<float> read(const RowStore& store, const std::vector<uint64_t>& keys, uint32_t dim,
                        uint64_t now = 0) {
  std::vector<float> out(keys.size() * dim);
  store.read(keys, now, out);
  return out;
}

std::vector<uint64_t> keys_of(const std::vector<HotRow>& rows) {
  std::vector<uint64_t> keys;
  for (const HotRow& row : rows) keys.push_back(row.key);
  return keys;
}

TEST(RowStore, CreatesRowsThatDependOnSeedTableAndKeyAlone) {
  RowStore one(table(), {.seed = 5, .table = 1});
  RowStore other(table(), {.seed = 5, .table = 1});
  const std::vector<uint64_t> keys = {3, 9, 12};
  ASSERT_TRUE(one.use(keys, 0).ok());
  for (const uint64_t key : {12, 9, 700, 3}) {
    ASSERT_TRUE(other.use(std::vector<uint64_t>{key}, 4).ok());
  }
  EXPECT_EQ(read(one, keys, 3), read(other, keys, 3));
  RowStore other_seed(table(), {.seed = 6, .table = 1});
  RowStore other_table(table(), {.seed = 5, .table = 2});
  for (RowStore* const store : {&other_seed, &other_table}) {
    ASSERT_TRUE(store->use(keys, 0).ok());
    EXPECT_NE(read(*store, keys, 3), read(one, keys, 3));
  }
  std::set<float> values;
  for (const float value : read(one, keys, 3)) values.insert(value);
  EXPECT_EQ(values.size(), 9u);
}

TEST(RowStore, BeginsWithNumbersOfTheTablesDeviation) {
  RowStore store(table(), {});
  std::vector<uint64_t> keys(10'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 17;
  ASSERT_TRUE(store.use(keys, 0).ok());
  double squares = 0;
  for (const float value : read(store, keys, 3)) squares += static_cast<double>(value * value);
  EXPECT_NEAR(std::sqrt(squares / 30'000), 0.1, 0.002);
  TableSpec zero = table();
  zero.deviation = 0;
  RowStore zeros(zero, {});
  ASSERT_TRUE(zeros.use(keys, 0).ok());
  EXPECT_EQ(read(zeros, keys, 3), std::vector<float>(30'000));
}

TEST(RowStore, RefusesMoreRowsThanItMayHave) {
  RowStore store(table(), {.rows_max = 4});
  ASSERT_TRUE(store.use(std::vector<uint64_t>{1, 2, 3}, 0).ok());
  const Status refused = store.use(std::vector<uint64_t>{3, 4, 5}, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_EQ(refused.error().message,
            "[server] user: expected at most 4 rows, got 3 and 2 new ones");
  EXPECT_EQ(store.rows(), 3u);
  EXPECT_EQ(store.find(4), nullptr);
  EXPECT_TRUE(store.use(std::vector<uint64_t>{1, 2, 3, 4}, 0).ok());
}

TEST(RowStore, CountsUsesWithTheirHalfLife) {
  TableSpec spec = table();
  RowStore forever(spec, {});
  spec.life.half_life = 10;
  RowStore halving(spec, {});
  for (RowStore* const store : {&forever, &halving}) {
    for (const uint64_t now : {0, 10, 20})
      ASSERT_TRUE(store->use(std::vector<uint64_t>{1}, now).ok());
  }
  EXPECT_EQ(forever.find(1)->frequency, 3.0f);
  EXPECT_FLOAT_EQ(halving.find(1)->frequency, 1.75f);
}

TEST(RowStore, NamesTheHottestKeys) {
  TableSpec spec = table();
  spec.life.half_life = 1;
  RowStore store(spec, {});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store.use(std::vector<uint64_t>{7}, 0).ok());
  ASSERT_TRUE(store.use(std::vector<uint64_t>{8, 9}, 4).ok());
  ASSERT_TRUE(store.use(std::vector<uint64_t>{9}, 4).ok());
  EXPECT_EQ(store.hottest(1, 4), (std::vector<HotRow>{{9, 2.0f}}));
  EXPECT_EQ(keys_of(store.hottest(2, 4)), (std::vector<uint64_t>{9, 8}));
  EXPECT_EQ(keys_of(store.hottest(9, 4)), (std::vector<uint64_t>{9, 8, 7}));
}

// A row decays once for all clocks since its last update, also where it was read in between.
TEST(RowStore, DecaysWhenItIsUsed) {
  TableSpec spec = table(1);
  spec.life.decay = 0.25;
  RowStore store(spec, {});
  const std::vector<uint64_t> key = {1};
  ASSERT_TRUE(store.use(key, 4).ok());
  const float first = read(store, key, 1, 10)[0];  // never updated, so it has not decayed
  EXPECT_EQ(store.begin_update(1, 10).values[0], first);
  EXPECT_EQ(read(store, key, 1, 10)[0], first);
  EXPECT_EQ(read(store, key, 1, 12)[0], first * 0.5625f);
  ASSERT_TRUE(store.use(key, 12).ok());
  EXPECT_EQ(read(store, key, 1, 13)[0], first * 0.421875f);
  const RowStore::Row row = store.begin_update(1, 13);
  EXPECT_EQ(row.values[0], first * 0.421875f);
  EXPECT_EQ(read(store, key, 1, 13)[0], first * 0.421875f);
  // The clock of a worker that is behind.
  EXPECT_EQ(read(store, key, 1, 11)[0], first * 0.421875f);
}

TEST(RowStore, ExpiresRowsThatAreRareAndIdle) {
  TableSpec spec = table();
  spec.life = {.idle_max = 5, .frequency_min = 2};
  RowStore store(spec, {});
  ASSERT_TRUE(store.use(std::vector<uint64_t>{1, 2, 3}, 0).ok());
  ASSERT_TRUE(store.use(std::vector<uint64_t>{2}, 0).ok());  // frequent
  ASSERT_TRUE(store.use(std::vector<uint64_t>{3}, 4).ok());  // frequent, too
  ASSERT_TRUE(store.use(std::vector<uint64_t>{4}, 4).ok());  // not idle
  std::set<uint64_t> expired;
  for (int i = 0; i < 4; ++i) {
    for (const uint64_t key : store.sweep(5)) expired.insert(key);
  }
  EXPECT_EQ(expired, (std::set<uint64_t>{1}));
  EXPECT_EQ(store.rows(), 3u);
  EXPECT_EQ(store.find(1), nullptr);
}

TEST(RowStore, SweepsAllRowsWithinSixtyFourClocks) {
  TableSpec spec = table();
  spec.life = {.idle_max = 1, .frequency_min = 100};
  RowStore store(spec, {});
  std::vector<uint64_t> keys(10'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  ASSERT_TRUE(store.use(keys, 0).ok());
  size_t most = 0;
  for (uint64_t now = 1; now <= kSweepClocks; ++now) {
    most = std::max(most, store.sweep(now).size());
  }
  EXPECT_EQ(store.rows(), 0u);
  EXPECT_LE(most, 10'000 / kSweepClocks + 1);
}

TEST(RowStore, BeginsAnExpiredRowAnew) {
  TableSpec spec = table();
  spec.life = {.idle_max = 1, .frequency_min = 100};
  RowStore store(spec, {.seed = 3});
  const std::vector<uint64_t> key = {1};
  ASSERT_TRUE(store.use(key, 0).ok());
  const std::vector<float> first = read(store, key, 3);
  const RowStore::Row row = store.begin_update(1, 0);
  row.values[0] = 5;
  row.states[0] = 9;
  ASSERT_EQ(store.sweep(1).size(), 1u);
  EXPECT_TRUE(store.sweep(2).empty());
  const RowStore::Row again = store.begin_update(1, 3);
  EXPECT_EQ(std::vector<float>(again.values, again.values + 3), first);
  EXPECT_EQ(again.states[0], 0.0f);
  EXPECT_EQ(again.updates, 1u);
}

// Uses, expiries and reads in random order, against a map.
TEST(RowStore, HoldsWhatAMapHolds) {
  TableSpec spec = table(2);
  spec.life = {.idle_max = 30, .frequency_min = 3};
  RowStore store(spec, {.seed = 8});
  std::map<uint64_t, std::vector<float>> model;
  Random random(21);
  for (uint64_t now = 0; now < 400; ++now) {
    std::set<uint64_t> drawn;
    while (drawn.size() < 20) drawn.insert(random.below(random.below(2000) + 1));
    const std::vector<uint64_t> keys(drawn.begin(), drawn.end());
    ASSERT_TRUE(store.use(keys, now).ok());
    for (const uint64_t key : keys) {
      const RowStore::Row row = store.begin_update(key, now);
      const auto known = model.find(key);
      const std::vector<float> values(row.values, row.values + 2);
      if (known != model.end()) {
        ASSERT_EQ(values, known->second) << key;
      }
      row.values[1] += static_cast<float>(now);
      model[key] = {row.values[0], row.values[1]};
    }
    for (const uint64_t key : store.sweep(now)) ASSERT_EQ(model.erase(key), 1u) << key;
    ASSERT_EQ(store.rows(), model.size());
  }
  EXPECT_GT(model.size(), 100u);
  for (const auto& [key, values] : model) EXPECT_EQ(read(store, {key}, 2), values);
}

size_t allocated_bytes() {
  return ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
}

// Allocators of sanitizers do not tell.
bool tells_allocated_bytes() {
  const size_t before = allocated_bytes();
  const std::vector<std::byte> some(1 << 20);
  return allocated_bytes() >= before + some.size();
}

// n * (24 + 4 d (1 + k) + i) bytes, with i between 5.7 and 7.2.
TEST(RowStore, TakesTheMemoryThatTheFormulaSays) {
  if (!tells_allocated_bytes()) GTEST_SKIP() << "the allocator does not tell what it has allocated";
  const struct {
    uint32_t dim;
    optim::OptimizerKind optimizer;
    double states;
  } cases[] = {{1, optim::OptimizerKind::kSgd, 0},
               {16, optim::OptimizerKind::kAdagrad, 1},
               {8, optim::OptimizerKind::kAdamW, 2},
               {1, optim::OptimizerKind::kFtrl, 2}};
  for (const auto& each : cases) {
    SCOPED_TRACE(each.dim);
    TableSpec spec = table(each.dim);
    spec.deviation = 0;
    spec.optimizer.kind = each.optimizer;
    const size_t before = allocated_bytes();
    RowStore store(spec, {});
    constexpr uint64_t kRows = 1'000'000;
    for (uint64_t key = 0; key < kRows; ++key) {
      ASSERT_TRUE(store.use(std::span(&key, 1), 0).ok());
    }
    const double plain = 24 + 4 * each.dim * (1 + each.states);
    const double counted = static_cast<double>(store.bytes()) / kRows;
    EXPECT_GE(counted, plain + 5.7);
    EXPECT_LE(counted, (plain + 7.2) * 1.005);
    const size_t after = allocated_bytes();
    const double allocated = static_cast<double>(after - before) / kRows;
    EXPECT_NEAR(allocated / counted, 1.0, 0.01);
  }
}

}  // namespace
}  // namespace lockstep::server
