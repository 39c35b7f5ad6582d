#include "common/layout/state_layout.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr int64_t kShareAlign = 16;  // floats

}  // namespace

StateLayout::StateLayout(const ModelDesign& design, const Mesh& mesh)
    : mesh_(mesh), table_(parameter_table(design)) {
  for (int64_t stage = 0; stage < mesh.pipeline; ++stage) {
    for (int64_t shard = 0; shard < mesh.tensor; ++shard) {
      arenas_.push_back(parameter_arena(design, pipeline_stage(design, mesh.pipeline, stage),
                                        {.index = shard, .size = mesh.tensor}));
    }
  }
}

std::vector<int64_t> StateLayout::holders(const Parameter& parameter) const {
  std::vector<int64_t> ranks;
  for (int64_t stage = 0; stage < mesh_.pipeline; ++stage) {
    if (arena(stage, 0).find(parameter.id) == nullptr) continue;
    for (int64_t shard = 0; shard < mesh_.tensor; ++shard) {
      ranks.push_back(rank_of(mesh_, {.pipeline = stage, .tensor = shard}));
    }
  }
  return ranks;
}

// The stage of the parameter's block has it first, as blocks and stages ascend.
std::vector<int64_t> StateLayout::owners(const Parameter& parameter) const {
  std::vector<int64_t> ranks = holders(parameter);
  ranks.resize(parameter.shard_axis < 0 ? 1 : static_cast<size_t>(mesh_.tensor));
  return ranks;
}

std::vector<ShardRun> StateLayout::pieces(const Parameter& parameter, int64_t rank) const {
  const MeshCoordinates at = coordinates(mesh_, rank);
  const ArenaEntry* entry = arena(at.pipeline, at.tensor).find(parameter.id);
  if (entry == nullptr) return {};
  return shard_runs(parameter, *entry, {.index = at.tensor, .size = mesh_.tensor});
}

// Cuts at multiples of a cache line, so that two ranks never write the same line.
StateLayout::ArenaRange StateLayout::share(int64_t rank, int64_t index) const {
  const int64_t count = arena_of(rank).count;
  const auto cut = [&](int64_t i) {
    return i == mesh_.data ? count : count / mesh_.data * i / kShareAlign * kShareAlign;
  };
  return {cut(index), cut(index + 1)};
}

std::vector<StateLayout::ArenaPiece> StateLayout::pieces_within(int64_t rank,
                                                                const ArenaRange& range,
                                                                bool owned_only) const {
  const MeshCoordinates at = coordinates(mesh_, rank);
  const int64_t holder = rank_of(mesh_, {.pipeline = at.pipeline, .tensor = at.tensor});
  std::vector<ArenaPiece> pieces;
  for (const ArenaEntry& entry : arena_of(rank).entries) {
    if (entry.offset >= range.end || entry.offset + entry.count <= range.begin) continue;
    const Parameter& parameter = table_[static_cast<size_t>(entry.id)];
    if (owned_only) {
      const std::vector<int64_t> owning = owners(parameter);
      if (std::find(owning.begin(), owning.end(), holder) == owning.end()) continue;
    }
    ArenaPiece piece{.id = entry.id, .runs = {}};
    for (const ShardRun& run :
         shard_runs(parameter, entry, {.index = at.tensor, .size = mesh_.tensor})) {
      const int64_t begin = std::max(entry.offset + run.local, range.begin);
      const int64_t end = std::min(entry.offset + run.local + run.count, range.end);
      if (begin >= end) continue;
      const int64_t skipped = begin - entry.offset - run.local;
      piece.runs.push_back({.local = begin, .global = run.global + skipped, .count = end - begin});
    }
    if (!piece.runs.empty()) pieces.push_back(std::move(piece));
  }
  return pieces;
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
