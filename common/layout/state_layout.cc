#include "common/layout/state_layout.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr int64_t kShareAlign = 16;  // floats

// Returns the runs of a parameter's local part that a rank's shard has, with their places there.
std::vector<ShardRun> runs_in_shard(const std::vector<ShardRun>& runs, const ArenaEntry& entry,
                                    const std::vector<ShardSlice>& slices) {
  std::vector<ShardRun> all;
  for (const ShardRun& run : runs) {
    const int64_t begin = entry.offset + run.local;
    for (const ShardSlice& slice : offsets_within(slices, begin, begin + run.count)) {
      all.push_back({.local = slice.local,
                     .global = run.global + slice.offset - begin,
                     .count = slice.count});
    }
  }
  return all;
}

}  // namespace

StateLayout::StateLayout(const ModelDesign& design, const Mesh& mesh, const ShardLayout::Cut& cut)
    : mesh_(mesh), ranks_(cut.ranks), table_(parameter_table(design)) {
  for (int64_t stage = 0; stage < mesh.pipeline; ++stage) {
    for (int64_t shard = 0; shard < mesh.tensor; ++shard) {
      layouts_.emplace_back(design,
                            parameter_arena(design, stage_chunks(design, mesh, stage),
                                            {.index = shard, .size = mesh.tensor}),
                            cut);
    }
  }
}

const ShardLayout& StateLayout::shards(int64_t rank) const {
  const MeshCoordinates at = coordinates(mesh_, rank);
  return layout(at.pipeline, at.tensor);
}

std::vector<int64_t> StateLayout::holders(const Parameter& parameter) const {
  std::vector<int64_t> ranks;
  for (int64_t stage = 0; stage < mesh_.pipeline; ++stage) {
    if (layout(stage, 0).arena().find(parameter.id) == nullptr) continue;
    for (int64_t data = 0; data < ranks_; ++data) {
      for (int64_t shard = 0; shard < mesh_.tensor; ++shard) {
        const int64_t rank = rank_of(mesh_, {.pipeline = stage, .data = data, .tensor = shard});
        if (ranks_ == 1 || !pieces(parameter, rank).empty()) ranks.push_back(rank);
      }
    }
  }
  return ranks;
}

std::vector<ShardRun> StateLayout::pieces(const Parameter& parameter, int64_t rank) const {
  const ShardLayout& shards = this->shards(rank);
  const ArenaEntry* entry = shards.arena().find(parameter.id);
  if (entry == nullptr) return {};
  return runs_in_shard(shard_runs(parameter, *entry, shards.arena().shard), *entry,
                       shards.slices(shard_index(rank)));
}

// Cuts at multiples of a cache line, so that two ranks never write the same line.
StateLayout::ShardRange StateLayout::share(int64_t rank, int64_t index) const {
  const int64_t count = shards(rank).shard_count();
  const auto cut = [&](int64_t i) {
    return i == replicas() ? count : count / replicas() * i / kShareAlign * kShareAlign;
  };
  return {cut(index), cut(index + 1)};
}

std::vector<StateLayout::ShardPiece> StateLayout::pieces_within(int64_t rank,
                                                                const ShardRange& range,
                                                                bool owned_only) const {
  const ShardLayout& shards = this->shards(rank);
  const TensorShard& shard = shards.arena().shard;
  const std::vector<ShardSlice> slices =
      slices_within(shards.slices(shard_index(rank)), range.begin, range.end);
  std::vector<ShardPiece> all;
  for (const ArenaEntry& entry : shards.arena().entries) {
    if (owned_only && !entry.counts_in_norm) continue;
    const Parameter& parameter = table_[static_cast<size_t>(entry.id)];
    const std::vector<ShardRun> runs =
        owned_only ? owned_runs(parameter, entry, shard) : shard_runs(parameter, entry, shard);
    ShardPiece piece{.id = entry.id, .runs = runs_in_shard(runs, entry, slices)};
    if (!piece.runs.empty()) all.push_back(std::move(piece));
  }
  return all;
}

std::vector<ShardRun> runs_within(const std::vector<ShardRun>& runs, int64_t begin, int64_t end) {
  std::vector<ShardRun> parts;
  auto run = std::partition_point(runs.begin(), runs.end(), [&](const ShardRun& each) {
    return each.global + each.count <= begin;
  });
  for (; run != runs.end() && run->global < end; ++run) {
    const int64_t first = std::max(begin, run->global);
    const int64_t count = std::min(end, run->global + run->count) - first;
    parts.push_back({.local = run->local + first - run->global, .global = first, .count = count});
  }
  return parts;
}

}  // namespace lockstep
