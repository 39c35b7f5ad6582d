// Updates of ranges and rows: sums in order, and each row as a tensor of its own.
#include "agent/server/unit_state.h"

#include <gtest/gtest.h>

#include <map>

#include "agent/server/rows_state.h"
#include "common/base/random.h"
#include "kernels/ops/op_table.h"

namespace lockstep::server {
namespace {

using optim::OptimizerKind;
using optim::OptimizerOptions;

std::vector<OptimizerOptions> optimizers() {
  return {{.kind = OptimizerKind::kSgd, .weight_decay = 0.01},
          {.kind = OptimizerKind::kSgd, .momentum = 0.9, .nesterov = true},
          {.kind = OptimizerKind::kAdagrad},
          {.kind = OptimizerKind::kAdamW, .weight_decay = 0},
          {.kind = OptimizerKind::kFtrl, .l1 = 0.01, .weight_decay = 0.1}};
}

// A tensor that the kernels update alone.
struct Plain {
  Plain(size_t count, const OptimizerOptions& made_with)
      : optimizer(made_with),
        values(count),
        states{std::vector<float>(count), std::vector<float>(count)} {}
  void update(const std::vector<float>& gradient, double learning_rate) {
    kernels::UpdatedTensor tensor{.parameter = values.data(),
                                  .gradient = gradient.data(),
                                  .count = static_cast<int64_t>(values.size()),
                                  .weight_decay = static_cast<float>(optimizer.weight_decay)};
    for (size_t k = 0; k < optim::state_kinds(optimizer).size(); ++k) {
      tensor.states[k] = states[k].data();
    }
    kernels::Stream stream;
    optim::update_tensors(kernels::cpu_ops(), stream, optimizer,
                          {.learning_rate = learning_rate, .step = ++steps}, {&tensor, 1});
  }
  OptimizerOptions optimizer;
  std::vector<float> values;
  std::vector<float> states[2];
  int64_t steps = 0;
};

std::vector<float> drawn(Random& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return values;
}

std::vector<float> read(UnitState& state, const std::vector<uint64_t>& keys, size_t count) {
  std::vector<float> out(count);
  state.read(keys, 0, out);
  return out;
}

TEST(RangeState, AddsUpInTheOrderOfTheGradientsAndUpdatesOnce) {
  for (const OptimizerOptions& optimizer : optimizers()) {
    SCOPED_TRACE(static_cast<int>(optimizer.kind));
    constexpr size_t kCount = 77;
    RangeState state(kCount, optimizer);
    Plain plain(kCount, optimizer);
    Random random(3);
    if (optimizer.kind != OptimizerKind::kFtrl) {
      plain.values = drawn(random, kCount);
      ASSERT_TRUE(state.put(plain.values).ok());
    }
    for (int step = 0; step < 5; ++step) {
      const std::vector<float> a = drawn(random, kCount), b = drawn(random, kCount),
                               c = drawn(random, kCount);
      std::vector<float> sum(kCount);
      for (size_t i = 0; i < kCount; ++i) sum[i] = (a[i] + b[i]) + c[i];
      const Gradient gradients[] = {{.values = a}, {.values = b}, {.values = c}};
      state.update(gradients, {.learning_rate = 0.1});
      plain.update(sum, 0.1);
      ASSERT_EQ(read(state, {}, kCount), plain.values);
    }
  }
}

// Each row is a tensor of its own, with its own number of steps, whatever other rows a call has.
TEST(RowsState, UpdatesEachRowAsATensorOfItsOwn) {
  for (const OptimizerOptions& optimizer : optimizers()) {
    SCOPED_TRACE(static_cast<int>(optimizer.kind));
    constexpr uint32_t kDim = 5;
    RowsState state({.name = "t", .dim = kDim, .optimizer = optimizer}, {});
    std::map<uint64_t, Plain> plain;
    Random random(5);
    for (int step = 0; step < 40; ++step) {
      std::map<uint64_t, std::vector<float>> rows;
      while (rows.size() < 6) rows[random.below(20)] = drawn(random, kDim);
      std::vector<uint64_t> keys;
      std::vector<float> values;
      for (const auto& [key, row] : rows) {
        keys.push_back(key);
        values.insert(values.end(), row.begin(), row.end());
        plain.try_emplace(key, kDim, optimizer).first->second.update(row, 0.1);
      }
      ASSERT_TRUE(state.use(keys, 0).ok());
      const Gradient gradient{.keys = keys, .values = values};
      state.update({&gradient, 1}, {.learning_rate = 0.1});
    }
    for (const auto& [key, tensor] : plain) EXPECT_EQ(read(state, {key}, kDim), tensor.values);
  }
}

TEST(RowsState, AddsUpTheRowsOfTheSameKeyInOrder) {
  RowsState state(
      {.name = "t", .dim = 1, .optimizer = {.kind = OptimizerKind::kSgd, .weight_decay = 0}}, {});
  const std::vector<uint64_t> first = {1, 5, 9}, second = {5, 7}, third = {1, 5};
  // In another order the sum of key 5 would be 0 or 2^-24.
  const std::vector<float> a = {1, 1, 3}, b = {0x1p-24f, 4}, c = {2, -1};
  const std::vector<uint64_t> all = {1, 5, 7, 9};
  ASSERT_TRUE(state.use(all, 0).ok());
  const Gradient gradients[] = {{first, a}, {second, b}, {third, c}};
  state.update(gradients, {.learning_rate = 1});
  EXPECT_EQ(read(state, all, 4), (std::vector<float>{-3, 0, -4, -3}));
  const Gradient reversed[] = {{first, a}, {third, c}, {second, b}};
  state.update(reversed, {.learning_rate = 1});
  EXPECT_EQ(read(state, all, 4), (std::vector<float>{-6, -0x1p-24f, -8, -6}));
}

TEST(RowsState, CreatesRowsThatHaveExpiredSinceTheirUse) {
  RowsState state({.name = "t",
                   .dim = 1,
                   .optimizer = {.kind = OptimizerKind::kSgd, .weight_decay = 0},
                   .life = {.idle_max = 1, .frequency_min = 9}},
                  {});
  const std::vector<uint64_t> key = {1};
  ASSERT_TRUE(state.use(key, 0).ok());
  ASSERT_EQ(state.sweep(1).size(), 1u);
  const std::vector<float> value = {2};
  const Gradient gradient{key, value};
  state.update({&gradient, 1}, {.learning_rate = 1, .now = 1});
  EXPECT_EQ(read(state, key, 1), (std::vector<float>{-2}));
}

}  // namespace
}  // namespace lockstep::server
