#include "common/layout/shard_layout.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr ModelConfig kTiedGpt{.layers = 3, .width = 8, .heads = 2, .context = 4, .vocabulary = 11};
const MlpConfig kSmallMlp{.inputs = 7, .hidden = {10, 33}, .outputs = 3};

ShardLayout layout_of(const ModelDesign& design, const ShardLayout::Cut& cut) {
  return {design, parameter_arena(design, whole_model(design)), cut};
}

TEST(ShardLayout, OfOneRankIsTheArena) {
  for (const ModelDesign& design : {ModelDesign(kTiedGpt), ModelDesign(kSmallMlp)}) {
    const ParameterArena arena = parameter_arena(design, whole_model(design));
    const ShardLayout layout = layout_of(design, {});
    EXPECT_EQ(layout.shard_count(), arena.count);
    EXPECT_EQ(layout.slices(0), (std::vector<ShardSlice>{{.count = arena.count}}));
    for (size_t i = 0; i < arena.entries.size(); ++i) {
      EXPECT_EQ(layout.arena().entries[i].offset, arena.entries[i].offset);
    }
  }
}

TEST(ShardLayout, CutsBlocksAndPadsThemSoThatPiecesAreEqual) {
  for (const int64_t ranks : {2, 3, 8}) {
    const ShardLayout layout = layout_of(kTiedGpt, {.ranks = ranks});
    ASSERT_EQ(std::ssize(layout.units()), block_count(kTiedGpt));
    const std::vector<Parameter> table = parameter_table(kTiedGpt);
    int64_t next = 0;
    int64_t local = 0;
    for (const ShardUnit& unit : layout.units()) {
      EXPECT_EQ(unit.offset, next);
      EXPECT_EQ(unit.local, local);
      EXPECT_EQ(unit.piece % 16, 0);
      EXPECT_EQ(layout.arena().find(unit.first_id)->offset, unit.offset);
      const ArenaEntry& last = *layout.arena().find(unit.last_id);
      const int64_t padding = unit.offset + layout.count(unit) - last.offset - last.count;
      EXPECT_GE(padding, 0);
      EXPECT_LT(padding, 16 * (ranks + 1));
      EXPECT_EQ(table[static_cast<size_t>(unit.first_id)].block,
                table[static_cast<size_t>(unit.last_id)].block);
      next += layout.count(unit);
      local += unit.piece;
    }
    EXPECT_EQ(layout.arena().count, next);
    EXPECT_EQ(layout.shard_count(), local);
  }
}

TEST(ShardLayout, JoinsSmallBlocksButNotATiedEmbeddings) {
  const ShardLayout tied = layout_of(kTiedGpt, {.ranks = 2, .unit_bytes = 1 << 20});
  ASSERT_EQ(tied.units().size(), 2u);
  EXPECT_EQ(tied.units().front().last_id, kPositionEmbedding);
  EXPECT_EQ(tied.unit_of(kTokenEmbedding), 0u);
  EXPECT_EQ(tied.unit_of(kPositionEmbedding + 1), 1u);
  EXPECT_EQ(layout_of(kSmallMlp, {.ranks = 2, .unit_bytes = 1 << 20}).units().size(), 1u);
}

// The backwards of other chunks run at other times.
TEST(ShardLayout, JoinsBlocksOfAChunkOnly) {
  ModelConfig config = kTiedGpt;
  config.layers = 8;
  const std::vector<Parameter> table = parameter_table(config);
  for (int64_t stage = 0; stage < 2; ++stage) {
    const std::vector<Stage> chunks =
        stage_chunks(config, {.pipeline = 2, .virtual_stages = 2}, stage);
    const ShardLayout layout(config, parameter_arena(ModelDesign(config), chunks),
                             {.ranks = 2, .unit_bytes = 1 << 20, .ties_stages = true});
    EXPECT_EQ(layout.units().size(), stage == 0 ? 4u : 3u) << "the embeddings and two chunks";
    for (const ShardUnit& unit : layout.units()) {
      const int64_t first = table[static_cast<size_t>(unit.first_id)].block;
      const int64_t last = table[static_cast<size_t>(unit.last_id)].block;
      EXPECT_TRUE(first == last || has_block({chunks[0]}, first) == has_block({chunks[0]}, last));
    }
  }
}

TEST(ShardLayout, CutsSlicesAtTheEndsOfARange) {
  const std::vector<ShardSlice> slices{{.offset = 0, .local = 0, .count = 16},
                                       {.offset = 64, .local = 16, .count = 32}};
  EXPECT_EQ(offsets_within(slices, 8, 72),
            (std::vector<ShardSlice>{{.offset = 8, .local = 8, .count = 8},
                                     {.offset = 64, .local = 16, .count = 8}}));
  EXPECT_EQ(slices_within(slices, 20, 100),
            (std::vector<ShardSlice>{{.offset = 68, .local = 20, .count = 28}}));
  EXPECT_TRUE(offsets_within(slices, 16, 64).empty());
}

}  // namespace
}  // namespace lockstep
