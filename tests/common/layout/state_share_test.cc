// The parts of a model's state that ranks with the same values divide among them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "common/layout/state_layout.h"

namespace lockstep {
namespace {

const ModelConfig kGpt{.layers = 2, .width = 8, .heads = 2, .context = 4, .vocabulary = 11};
const ModelConfig kTied{.layers = 2,
                        .width = 16,
                        .heads = 4,
                        .context = 4,
                        .vocabulary = 11,
                        .family = Family::kLlama,
                        .hidden = 12,
                        .tied = true,
                        .kv_heads = 2};
ModelConfig with_kv_heads(int64_t count) {
  ModelConfig config = kTied;
  config.kv_heads = count;
  return config;
}

const MlpConfig kMlp{.inputs = 7, .hidden = {10, 33}, .outputs = 3};
const std::pair<ModelDesign, Mesh> kCases[] = {
    {kGpt, {}},
    {kGpt, {.data = 3}},
    {kGpt, {.data = 8}},
    {kGpt, {.pipeline = 2, .data = 3, .tensor = 2}},
    {kTied, {.data = 4}},
    {kTied, {.pipeline = 2, .data = 2}},
    {kTied, {.pipeline = 2, .data = 5, .tensor = 2}},
    {kTied, {.data = 2, .tensor = 4}},
    {with_kv_heads(1), {.tensor = 2}},
    {with_kv_heads(1), {.pipeline = 2, .data = 4, .tensor = 4}},
    {kMlp, {.data = 8}},
    {kMlp, {.pipeline = 3, .data = 2}},
    {MlpConfig{.inputs = 1, .outputs = 1}, {.data = 8}},  // more ranks than cache lines
};

std::string text_of(const Mesh& mesh) {
  return std::to_string(mesh.pipeline) + " x " + std::to_string(mesh.data) + " x " +
         std::to_string(mesh.tensor);
}

// How often each element of each parameter is among the pieces.
using Counts = std::map<int64_t, std::vector<int>>;

void count(const std::vector<StateLayout::ShardPiece>& pieces, Counts& counts) {
  for (const StateLayout::ShardPiece& piece : pieces) {
    for (const ShardRun& run : piece.runs) {
      for (int64_t i = 0; i < run.count; ++i) {
        ++counts[piece.id].at(static_cast<size_t>(run.global + i));
      }
    }
  }
}

TEST(StateShare, OfAllRanksTogetherHaveEveryElementOnce) {
  for (const auto& [design, mesh] : kCases) {
    const StateLayout layout(design, mesh);
    Counts counts;
    for (const Parameter& parameter : layout.table()) {
      counts[parameter.id].resize(static_cast<size_t>(parameter.count()));
    }
    const Counts none = counts;
    for (int64_t rank = 0; rank < mesh.size(); ++rank) {
      const auto range = layout.share(rank, coordinates(mesh, rank).data);
      count(layout.pieces_within(rank, range, /*owned_only=*/true), counts);
    }
    for (const auto& [id, times] : counts) {
      EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << text_of(mesh) << ", parameter " << id;
    }
  }
}

// Groups of ranks divide the arena; ranks of several groups with the same place divide that shard.
TEST(StateShare, OfShardedRanksTogetherHaveEveryElementOnce) {
  for (const auto& [design, mesh] : kCases) {
    for (int64_t group = 1; group <= mesh.data; ++group) {
      if (mesh.data % group != 0) continue;
      for (const int64_t unit_bytes : {int64_t{0}, int64_t{300}, int64_t{1} << 20}) {
        SCOPED_TRACE(text_of(mesh) + " in groups of " + std::to_string(group));
        const StateLayout layout(design, mesh, {.ranks = group, .unit_bytes = unit_bytes});
        Counts counts;
        for (const Parameter& parameter : layout.table()) {
          counts[parameter.id].resize(static_cast<size_t>(parameter.count()));
        }
        for (int64_t rank = 0; rank < mesh.size(); ++rank) {
          const auto range = layout.share(rank, layout.replica(rank));
          count(layout.pieces_within(rank, range, /*owned_only=*/true), counts);
        }
        for (const auto& [id, times] : counts) {
          EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << "parameter " << id;
        }
      }
    }
  }
}

// Each of d ranks has n / d of n floats, give or take less than a cache line and d floats.
TEST(StateShare, AreOfAboutTheSameSizeAndEndAtCacheLines) {
  for (const auto& [design, mesh] : kCases) {
    SCOPED_TRACE(text_of(mesh));
    const StateLayout layout(design, mesh);
    for (int64_t rank = 0; rank < mesh.size(); ++rank) {
      const MeshCoordinates at = coordinates(mesh, rank);
      const int64_t all =
          parameter_arena(design, pipeline_stage(design, mesh.pipeline, at.pipeline),
                          {.index = at.tensor, .size = mesh.tensor})
              .count;
      int64_t end = 0;
      for (int64_t index = 0; index < mesh.data; ++index) {
        const StateLayout::ShardRange range = layout.share(rank, index);
        EXPECT_EQ(range.begin, end);
        EXPECT_EQ(range.begin % 16, 0);
        EXPECT_LT(std::abs(range.count() - all / mesh.data), 16 + mesh.data);
        end = range.end;
      }
      EXPECT_EQ(end, all);
    }
  }
}

// Together, with those that other ranks own, they are all that a rank holds.
TEST(StateShare, OfOnePlaceAreItsArena) {
  for (const auto& [design, mesh] : kCases) {
    SCOPED_TRACE(text_of(mesh));
    const StateLayout layout(design, mesh);
    for (int64_t rank = 0; rank < mesh.size(); ++rank) {
      const MeshCoordinates at = coordinates(mesh, rank);
      const ParameterArena arena =
          parameter_arena(design, pipeline_stage(design, mesh.pipeline, at.pipeline),
                          {.index = at.tensor, .size = mesh.tensor});
      std::map<int64_t, int64_t> global;  // by place in the arena
      for (int64_t index = 0; index < mesh.data; ++index) {
        const auto range = layout.share(rank, index);
        for (const auto& piece : layout.pieces_within(rank, range, /*owned_only=*/false)) {
          for (const ShardRun& run : piece.runs) {
            EXPECT_GE(run.local, range.begin);
            EXPECT_LE(run.local + run.count, range.end);
            for (int64_t i = 0; i < run.count; ++i) global[run.local + i] = run.global + i;
          }
        }
      }
      std::map<int64_t, int64_t> expected;
      for (const ArenaEntry& entry : arena.entries) {
        const Parameter& parameter = layout.table()[static_cast<size_t>(entry.id)];
        for (const ShardRun& run : layout.pieces(
                 parameter, rank_of(mesh, {.pipeline = at.pipeline, .tensor = at.tensor}))) {
          for (int64_t i = 0; i < run.count; ++i) {
            expected[run.local + i] = run.global + i;
          }
        }
      }
      EXPECT_EQ(global, expected) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace lockstep
