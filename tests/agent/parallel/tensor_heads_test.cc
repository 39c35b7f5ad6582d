// Ranks that share the tensors of a model with fewer heads of keys and values than ranks:
// neighbours have the same head.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

struct Case {
  int64_t kv_heads = 1;
  Mesh mesh;
};

std::string name_of(const Case& c) {
  return std::to_string(c.kv_heads) + "HeadsPipeline" + std::to_string(c.mesh.pipeline) + "Data" +
         std::to_string(c.mesh.data) + "Tensor" + std::to_string(c.mesh.tensor);
}

// Groups of 1, 2 and 4 ranks with the same head.
const Case kCases[] = {{1, {.tensor = 2}},
                       {1, {.tensor = 4}},
                       {2, {.tensor = 2}},
                       {2, {.tensor = 4}},
                       {1, {.data = 2, .tensor = 2}},
                       {2, {.data = 2, .tensor = 4}},
                       {1, {.pipeline = 2, .data = 2, .tensor = 2}}};

class EachGrouping : public testing::TestWithParam<Case> {};

TEST_P(EachGrouping, TrainTheModelOfOneRank) {
  const ModelDesign design = small_llama(2, GetParam().kv_heads);
  const Trained alone = train(options_for(design, {}, 1));
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    SCOPED_TRACE(std::string(sharding_name(sharding)));
    ComposeOptions options = options_for(design, GetParam().mesh, 2);
    options.sharding.sharding = sharding;
    options.sharding.ranks = sharding == Sharding::kNone ? 1 : GetParam().mesh.data;
    const Trained split = train(options);
    expect_close(design, alone, split);
    expect_same_bits(split, train(options));
  }
}

INSTANTIATE_TEST_SUITE_P(FewKeyHeads, EachGrouping, testing::ValuesIn(kCases),
                         [](const auto& c) { return name_of(c.param); });

TEST(FewKeyHeads, TrainWithEveryExchange) {
  const ModelDesign design = small_llama(2, 1);
  const Trained alone = train(options_for(design, {}, 1));
  ComposeOptions options = options_for(design, {.data = 2, .tensor = 2}, 2);
  options.exchange = Exchange::kFirstRank;
  expect_close(design, alone, train(options));
}

TEST(FewKeyHeads, GiveTheSameBitsWithRecomputation) {
  const ModelDesign design = small_llama(2, 1);
  const Trained kept = train(options_for(design, {.tensor = 4}, 2));
  for (const Recompute recompute : {Recompute::kOps, Recompute::kBlocks}) {
    ComposeOptions options = options_for(design, {.tensor = 4}, 2);
    options.recompute = recompute;
    expect_same_bits(kept, train(options));
  }
}

TEST(FewKeyHeads, TrainWithBf16) {
  const ModelDesign design = small_llama(2, 2);
  ComposeOptions options = options_for(design, {.data = 2, .tensor = 4}, 1);
  const Trained plain = train(options);
  options.precision = kernels::Precision::kBf16;
  for (const Sharding sharding : {Sharding::kNone, Sharding::kParameters}) {
    options.sharding.sharding = sharding;
    options.sharding.ranks = sharding == Sharding::kNone ? 1 : 2;
    options.sharding.reduces_bf16 = true;
    const Trained rounded = train(options);
    for (size_t step = 0; step < plain.losses.size(); ++step) {
      EXPECT_NEAR(plain.losses[step], rounded.losses[step], 0.02);
    }
  }
}

// States go from any mesh to any other.
TEST(FewKeyHeads, ContinueTheStateOfOtherMeshes) {
  for (const int64_t kv_heads : {1, 2}) {
    const ModelDesign design = small_llama(2, kv_heads);
    const ComposeOptions alone = options_for(design, {}, 1);
    Trained first = train(alone);
    const Trained expected = train(alone, {.state = &first.state, .steps = kSteps});
    for (const Mesh& mesh : {Mesh{.tensor = 2}, Mesh{.data = 2, .tensor = 2}, Mesh{.tensor = 4}}) {
      SCOPED_TRACE(name_of({kv_heads, mesh}));
      const ComposeOptions split = options_for(design, mesh, 1);
      expect_close(design, expected, train(split, {.state = &first.state, .steps = kSteps}));
      Trained begun = train(split);
      expect_close(design, expected, train(alone, {.state = &begun.state, .steps = kSteps}));
    }
  }
}

// The values that a rank has after some steps, by (kind of state, parameter, element of the model).
using Values = std::map<std::tuple<size_t, int64_t, int64_t>, float>;

Values trained_values(const ComposeOptions& options, comm::Communicator& world) {
  const SystemClock clock;
  auto model = Composition::create(options, world, clock).value();
  EXPECT_TRUE(model->initialise(7).ok());
  Samples feed(options, model->place().data);
  for (int step = 1; step <= kSteps; ++step) {
    EXPECT_TRUE(
        model->run_step(feed, {.step = step, .learning_rate = 0.01, .clip_norm = 0.5}).ok());
  }
  const DeviceState state = model->state();
  std::vector<const float*> kinds{state.parameters};
  for (const optim::OptimizerState& kind : state.optimizer) kinds.push_back(kind.values);
  Values values;
  for (const ArenaEntry& entry : state.arena->entries) {
    const Parameter parameter = parameter_table(options.design)[static_cast<size_t>(entry.id)];
    for (const ShardRun& run : shard_runs(parameter, entry, state.arena->shard)) {
      for (int64_t i = 0; i < run.count; ++i) {
        for (size_t kind = 0; kind < kinds.size(); ++kind) {
          values[{kind, entry.id, run.global + i}] = kinds[kind][entry.offset + run.local + i];
        }
      }
    }
  }
  return values;
}

TEST(FewKeyHeads, HaveTheSameBitsOnAllRanksThatHoldThem) {
  ComposeOptions options = options_for(small_llama(2, 2), {.data = 2, .tensor = 4}, 2);
  options.precision = kernels::Precision::kBf16;
  options.optimizer.rounding_seed = 5;
  auto world = comm::make_thread_world(8).value();
  std::vector<Values> of_rank(world.size());
  {
    std::vector<std::jthread> ranks;
    for (size_t rank = 0; rank < world.size(); ++rank) {
      ranks.emplace_back([&, rank] { of_rank[rank] = trained_values(options, *world[rank]); });
    }
  }
  Values all;
  std::map<std::tuple<size_t, int64_t, int64_t>, int> holders;
  for (const Values& values : of_rank) {
    for (const auto& [place, value] : values) {
      EXPECT_EQ(all.try_emplace(place, value).first->second, value);
      ++holders[place];
    }
  }
  EXPECT_TRUE(std::ranges::any_of(holders, [](const auto& each) { return each.second == 4; }))
      << "keys and values, of 2 ranks each, twice";
}

}  // namespace
}  // namespace lockstep::parallel
