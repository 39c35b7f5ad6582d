#include "agent/parallel/shard/block_places.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "agent/parallel/shard/shard_memory.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kTied{.layers = 3, .width = 16, .heads = 2, .context = 8, .vocabulary = 29};
const MlpConfig kUneven{.inputs = 7, .hidden = {40, 9, 64}, .outputs = 3};

ShardLayout layout_of(const ModelDesign& design, int64_t ranks) {
  return {design, parameter_arena(design, whole_model(design)), {.ranks = ranks}};
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

Range range_of(const BlockPlaces& places, const ShardLayout& layout, size_t place) {
  const UnitPlace& where = places.places[place];
  return {where.offset, where.offset + layout.count(layout.units()[where.unit])};
}

// While a block computes, its neighbour on either side may be gathered.
TEST(ParameterPlaces, OfNeighboursDoNotOverlap) {
  for (const ModelDesign& design : {ModelDesign(kTied), ModelDesign(kUneven)}) {
    for (const int64_t ranks : {1, 3, 8}) {
      const ShardLayout layout = layout_of(design, ranks);
      const BlockPlaces places =
          parameter_places(design, blocks_of({whole_model(design)}), layout, /*frees=*/true);
      ASSERT_EQ(std::ssize(places.of_block), block_count(design));
      for (size_t block = 0; block + 1 < places.of_block.size(); ++block) {
        for (const size_t mine : places.of_block[block]) {
          const Range here = range_of(places, layout, mine);
          EXPECT_GE(here.begin, 0);
          EXPECT_LE(here.end, places.count);
          for (const size_t other : places.of_block[block + 1]) {
            const Range there = range_of(places, layout, other);
            EXPECT_TRUE(here.end <= there.begin || there.end <= here.begin) << "block " << block;
          }
        }
      }
    }
  }
}

TEST(ParameterPlaces, HaveRoomForTheLargestNeighboursAndNoMore) {
  const ShardLayout layout = layout_of(kTied, 4);
  const BlockPlaces places =
      parameter_places(kTied, blocks_of({whole_model(kTied)}), layout, /*frees=*/true);
  const auto count = [&](size_t unit) { return layout.count(layout.units()[unit]); };
  // The last layer and the head, which reads the tied embedding too.
  EXPECT_EQ(places.count, std::max({count(0) + count(1), count(1) + count(2), count(2) + count(3),
                                    count(3) + count(4) + count(0)}));
  EXPECT_EQ(places.of_block.back().size(), 2u);
}

TEST(ParameterPlaces, AreThoseOfTheArenaIfTheyAreKept) {
  const ShardLayout layout = layout_of(kTied, 4);
  const BlockPlaces places =
      parameter_places(kTied, blocks_of({whole_model(kTied)}), layout, /*frees=*/false);
  EXPECT_EQ(places.count, layout.arena().count);
  for (size_t unit = 0; unit < layout.units().size(); ++unit) {
    EXPECT_EQ(places.places[unit], (UnitPlace{unit, layout.units()[unit].offset}));
  }
  EXPECT_EQ(places.of_block.back(), (std::vector<size_t>{0, 4})) << "the embedding once";
}

TEST(GradientPlaces, OfNeighboursDoNotOverlapAndATiedEmbeddingIsApart) {
  for (const ModelDesign& design : {ModelDesign(kTied), ModelDesign(kUneven)}) {
    const ShardLayout layout = layout_of(design, 3);
    const GradientPlaces places = gradient_places(design, layout);
    const bool tied = transformer_of(design) != nullptr;
    EXPECT_EQ(places.places.front(), tied ? 2u : 0u);
    const auto end = [&](size_t unit) {
      return places.offsets[unit] + layout.count(layout.units()[unit]);
    };
    for (size_t unit = 0; unit < layout.units().size(); ++unit) {
      EXPECT_LE(end(unit), places.count);
      for (size_t other = 0; other < unit; ++other) {
        const bool apart = end(other) <= places.offsets[unit] || end(unit) <= places.offsets[other];
        const bool may_meet = places.places[unit] == places.places[other];
        const bool must_be_apart = (!may_meet && other + 1 == unit) || (tied && other == 0);
        EXPECT_TRUE(apart || !must_be_apart) << unit;
      }
    }
  }
}

// Padding apart, the formulas of shard_memory.h.
TEST(ShardMemory, DividesWhatTheModeSays) {
  const int64_t all = parameter_count(ModelDesign(kTied));
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    SCOPED_TRACE(sharding_name(sharding));
    const int64_t ranks = sharding == Sharding::kNone ? 1 : 4;
    const ShardMemory memory = shard_memory({.design = kTied,
                                             .mesh = {.data = 4},
                                             .optimizer = {},
                                             .sharding = {.sharding = sharding, .ranks = ranks}});
    const auto expect_share = [&](int64_t count, bool divided) {
      const int64_t exact = divided ? all / 4 : all;
      EXPECT_GE(count, exact);
      EXPECT_LT(count, exact + 32 * 40);
    };
    expect_share(memory.parameters, sharding == Sharding::kParameters);
    expect_share(memory.gradients, sharding >= Sharding::kGradients);
    expect_share(memory.state, sharding >= Sharding::kOptimizer);
    EXPECT_EQ(memory.gathered > 0, sharding == Sharding::kParameters);
    EXPECT_EQ(memory.unit_gradients > 0, sharding >= Sharding::kGradients);
    EXPECT_EQ(memory.copies + memory.gathered_copies + memory.travelling, 0);
    EXPECT_EQ(memory.far_states + memory.far_parameters, 0);
  }
}

TEST(ShardMemory, MovesOffloadedValuesOffTheDevice) {
  const ComposeOptions near{.design = kTied,
                            .mesh = {.data = 2},
                            .optimizer = {},
                            .sharding = {.sharding = Sharding::kParameters, .ranks = 2}};
  ComposeOptions far = near;
  far.offload.offload = Offload::kParameters;
  EXPECT_EQ(shard_memory(far).far_parameters, shard_memory(near).parameters);
  EXPECT_EQ(shard_memory(far).far_states, shard_memory(near).state);
  EXPECT_EQ(shard_memory(far).parameters + shard_memory(far).state, 0);
}

}  // namespace
}  // namespace lockstep::parallel
