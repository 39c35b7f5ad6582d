// Ranks that divide the values of a model, for tests.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "common/layout/model_design.h"
#include "common/layout/shard_layout.h"
#include "kernels/ops/op_table.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::parallel {

// Runs a body on ranks that are threads.
inline void on_threads(int ranks, const std::function<void(comm::Communicator&)>& body) {
  test::World world = test::make_world(test::Transport::kThreads, ranks);
  test::on_all(world, body);
}

// The same models in all tests of shards: a tied embedding, one that is not tied, and layers of
// uneven sizes whose units end with padding.
inline std::vector<ModelDesign> sharded_models() {
  ModelConfig gpt{.layers = 3, .width = 16, .heads = 2, .context = 8, .vocabulary = 29};
  ModelConfig llama{.layers = 2,
                    .width = 16,
                    .heads = 2,
                    .context = 8,
                    .vocabulary = 29,
                    .family = Family::kLlama,
                    .hidden = 24,
                    .tied = false,
                    .kv_heads = 1};
  return {gpt, llama, MlpConfig{.inputs = 7, .hidden = {40, 9, 64}, .outputs = 3}};
}

inline ShardLayout sharded_layout(const ModelDesign& design, const ShardLayout::Cut& cut) {
  return {design, parameter_arena(design, whole_model(design)), cut};
}

// Returns values for an arena, which bf16 does not represent exactly. Padding is zero.
inline std::vector<float> drawn_values(const ParameterArena& arena, int64_t turn) {
  std::vector<float> values(static_cast<size_t>(arena.count));
  for (const ArenaEntry& entry : arena.entries) {
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      const auto mixed =
          static_cast<uint32_t>(turn * 104729 + 1) * (2654435761U + 2 * static_cast<uint32_t>(i));
      values[static_cast<size_t>(i)] = static_cast<float>(mixed % 100003) / 99991.0f - 0.5f;
    }
  }
  return values;
}

// Returns the shard of rank `index`.
template <class T>
std::vector<T> shard_of(const ShardLayout& layout, int64_t index, const std::vector<T>& whole) {
  std::vector<T> shard(static_cast<size_t>(layout.shard_count()));
  for (const ShardSlice& slice : layout.slices(index)) {
    std::copy_n(whole.begin() + slice.offset, slice.count, shard.begin() + slice.local);
  }
  return shard;
}

// Returns the units that a block reads.
inline std::set<size_t> units_of(const ModelDesign& design, const ShardLayout& layout,
                                 int64_t block) {
  std::set<size_t> units;
  for (const int64_t id : block_parameters(design, block)) units.insert(layout.unit_of(id));
  return units;
}

// Returns the values of a unit that a rank gets from others when it is gathered or scattered.
inline int64_t moved_count(const ShardLayout& layout, size_t unit) {
  return layout.units()[unit].piece * (layout.ranks() - 1);
}

// Returns bf16 values, rounded as those of a step are (step 0: to nearest).
inline std::vector<kernels::Bf16> rounded(const ModelDesign& design, const ParameterArena& arena,
                                          const std::vector<float>& values, uint64_t rounding_seed,
                                          int64_t step) {
  std::vector<kernels::Bf16> copies(values.size());
  const std::vector<std::vector<IndexedBlock>> blocks = indexed_blocks(design, arena);
  kernels::Stream stream;
  for (size_t i = 0; i < arena.entries.size(); ++i) {
    for (const IndexedBlock& block : blocks[i]) {
      const int64_t at = arena.entries[i].offset + block.local;
      kernels::cpu_ops().cast(stream, {.x = kernels::ConstView(values.data() + at),
                                       .out = kernels::View(copies.data() + at),
                                       .count = block.count,
                                       .rounding_seed = step > 0 ? rounding_seed : 0,
                                       .step = step,
                                       .index = {block.first, block.columns, block.stride}});
    }
  }
  return copies;
}

// Returns the values of bf16 numbers.
inline std::vector<float> widened(const std::vector<kernels::Bf16>& copies) {
  std::vector<float> values(copies.size());
  kernels::Stream stream;
  kernels::cpu_ops().cast(stream, {.x = kernels::ConstView(copies.data()),
                                   .out = kernels::View(values.data()),
                                   .count = std::ssize(copies)});
  return values;
}

}  // namespace lockstep::parallel
