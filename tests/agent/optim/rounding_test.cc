// Ranks that hold parts of the parameters round them to the bits of a rank that holds all.
#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <utility>

#include "agent/optim/optimizer.h"
#include "common/base/random.h"

namespace lockstep::optim {
namespace {

constexpr uint64_t kSeed = 11;
const ModelConfig kGpt2{2, 32, 8, 8, 100};
const ModelConfig kLlama{.layers = 1,
                         .width = 64,
                         .heads = 16,
                         .context = 8,
                         .vocabulary = 300,
                         .family = Family::kLlama,
                         .hidden = 96,
                         .tied = false,
                         .kv_heads = 8};

// A parameter's id and an element of the whole of it.
using Element = std::pair<int64_t, int64_t>;

float value_of(const Element& element, uint64_t salt) {
  Random random(salt + static_cast<uint64_t>(element.first * 100'000 + element.second));
  return random.normal();
}

// One rank's arenas, of which each element has the value of its place in the whole model.
struct Rank {
  Rank(const ModelConfig& config, const Stage& stage, const TensorShard& shard)
      : config_(config), arena_(parameter_arena(config, stage, shard)) {
    const auto count = static_cast<size_t>(arena_.count);
    parameters_.resize(count);
    gradients_.resize(count);
    copies_.resize(count);
    for_elements([&](size_t at, const Element& element) {
      parameters_[at] = value_of(element, 1);
      gradients_[at] = value_of(element, 2);
    });
  }

  // Calls body(element of the arena, element of the model); leaves padding out.
  template <class Body>
  void for_elements(Body body) const {
    const std::vector<Parameter> table = parameter_table(config_);
    for (const ArenaEntry& entry : arena_.entries) {
      const Parameter& parameter = table[static_cast<size_t>(entry.id)];
      for (const ShardRun& run : shard_runs(parameter, entry, arena_.shard)) {
        for (int64_t i = 0; i < run.count; ++i) {
          body(static_cast<size_t>(entry.offset + run.local + i),
               Element{entry.id, run.global + i});
        }
      }
    }
  }
  Optimizer optimizer(const OptimizerOptions& options) {
    return Optimizer::create(config_, arena_,
                             {.parameters = parameters_.data(),
                              .gradients = gradients_.data(),
                              .copies = copies_.data()},
                             options, {}, kernels::cpu_ops())
        .value();
  }
  void add_copies(std::map<Element, uint16_t>& bits) const {
    for_elements([&](size_t at, const Element& element) {
      const uint16_t mine = copies_[at].bits;
      EXPECT_EQ(bits.try_emplace(element, mine).first->second, mine) << "another holder's";
    });
  }

  const ModelConfig& config_;
  ParameterArena arena_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<kernels::Bf16> copies_;
};

struct Layout {
  int64_t shards = 1;
  int64_t stages = 1;
};

// Returns the bits of all copies after step 3, and after they were made again.
std::vector<std::map<Element, uint16_t>> copies(const ModelConfig& config, OptimizerKind kind,
                                                const Layout& layout) {
  std::vector<std::map<Element, uint16_t>> bits(2);
  const OptimizerOptions options{.kind = kind, .momentum = 0.9, .rounding_seed = kSeed};
  for (int64_t stage = 0; stage < layout.stages; ++stage) {
    for (int64_t index = 0; index < layout.shards; ++index) {
      Rank rank(config, pipeline_stage(config, layout.stages, stage), {index, layout.shards});
      Optimizer optimizer = rank.optimizer(options);
      kernels::Stream stream;
      optimizer.step(stream, {.learning_rate = 1e-2, .step = 3});
      rank.add_copies(bits[0]);
      optimizer.refresh_copies(stream, 3);
      rank.add_copies(bits[1]);
    }
  }
  return bits;
}

TEST(StochasticRounding, HasTheSameBitsInEveryLayout) {
  ModelConfig few_keys = kLlama;
  few_keys.kv_heads = 2;
  for (const ModelConfig& config : {kGpt2, kLlama, few_keys}) {
    for (const OptimizerKind kind :
         {OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kAdagrad}) {
      const auto whole = copies(config, kind, {});
      EXPECT_EQ(whole[0], whole[1]);
      EXPECT_EQ(static_cast<int64_t>(whole[0].size()), parameter_count(config));
      for (const int64_t shards : {2, 4, 8}) {
        EXPECT_TRUE(copies(config, kind, {.shards = shards}) == std::vector(2, whole[0])) << shards;
      }
    }
    const auto whole = copies(config, OptimizerKind::kAdamW, {});
    if (config.layers > 1) {
      EXPECT_TRUE(copies(config, OptimizerKind::kAdamW, {.shards = 2, .stages = 2}) == whole);
    }
  }
}

// The order of the arena, with padding rows: the bits that every version has had.
TEST(StochasticRounding, CountsTheElementsOfAWholeModelOneByOne) {
  const ModelConfig padded{1, 8, 1, 4, 5000};
  const ParameterArena arena = parameter_arena(padded, whole_model(padded));
  int64_t next = 0;
  size_t entry = 0;
  for (const std::vector<IndexedBlock>& blocks : indexed_blocks(padded, arena)) {
    ASSERT_EQ(blocks.size(), 1u);
    EXPECT_EQ(blocks[0].first, next);
    EXPECT_EQ(blocks[0].columns, 0);
    EXPECT_EQ(blocks[0].count, arena.entries[entry].count);
    next += arena.entries[entry++].count;
  }
  EXPECT_EQ(next, parameter_count(padded) + 56 * padded.width) << "a multiple of 64 rows";
}

}  // namespace
}  // namespace lockstep::optim
