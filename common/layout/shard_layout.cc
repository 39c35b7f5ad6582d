#include "common/layout/shard_layout.h"

#include <algorithm>

#include "common/base/check.h"

namespace lockstep {
namespace {

constexpr int64_t kAlign = 16;  // floats: a cache line, as the arena's entries

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Ids {
  int64_t first = 0;
  int64_t last = 0;
};

// Ascending.
std::vector<Ids> cut_into_units(const ModelDesign& design, const ParameterArena& arena,
                                const ShardLayout::Cut& cut) {
  const std::vector<Parameter> table = parameter_table(design);
  const auto block_of = [&](const ArenaEntry& entry) {
    return table[static_cast<size_t>(entry.id)].block;
  };
  const bool tied = is_tied(design) && arena.find(kTokenEmbedding) != nullptr;
  std::vector<Ids> units;
  int64_t end = arena.count;
  int64_t last = -1;
  for (size_t i = arena.entries.size(); i-- > 0;) {
    const ArenaEntry& entry = arena.entries[i];
    if (last < 0) last = entry.id;
    const bool begins_arena = i == 0;
    const bool follows_tied = tied && cut.ties_stages && i == 1;
    const int64_t skipped = begins_arena ? 0 : block_of(entry) - block_of(arena.entries[i - 1]);
    if (!begins_arena && !follows_tied && skipped == 0) continue;  // within a block
    const bool begins_chunk = skipped > 1;
    const bool is_full =
        (end - entry.offset) * static_cast<int64_t>(sizeof(float)) >= cut.unit_bytes;
    const bool before_tied_block =
        tied && !begins_arena && block_of(arena.entries[i - 1]) == block_of(arena.entries.front());
    const bool is_end = begins_arena || begins_chunk || before_tied_block || follows_tied;
    if (!is_full && !is_end) continue;
    units.push_back({entry.id, last});
    end = entry.offset;
    last = -1;
  }
  std::reverse(units.begin(), units.end());
  return units;
}

std::vector<ShardSlice> cut(const std::vector<ShardSlice>& slices, int64_t ShardSlice::*place,
                            int64_t begin, int64_t end) {
  std::vector<ShardSlice> parts;
  auto slice = std::partition_point(slices.begin(), slices.end(), [&](const ShardSlice& each) {
    return each.*place + each.count <= begin;
  });
  for (; slice != slices.end() && (*slice).*place < end; ++slice) {
    const int64_t at = (*slice).*place;
    const int64_t skipped = std::max(begin - at, int64_t{0});
    parts.push_back({.offset = slice->offset + skipped,
                     .local = slice->local + skipped,
                     .count = std::min(at + slice->count, end) - at - skipped});
  }
  return parts;
}

}  // namespace

ShardLayout::ShardLayout(const ModelDesign& design, const ParameterArena& arena, const Cut& cut)
    : arena_{.entries = {}, .count = 0, .shard = arena.shard}, ranks_(cut.ranks) {
  size_t next = 0;
  for (const Ids& ids : cut_into_units(design, arena, cut)) {
    const int64_t offset = arena_.count;
    for (; next < arena.entries.size() && arena.entries[next].id <= ids.last; ++next) {
      arena_.add(arena.entries[next]);
    }
    const int64_t piece = rounded_up(rounded_up(arena_.count - offset, ranks_) / ranks_, kAlign);
    units_.push_back({.first_id = ids.first,
                      .last_id = ids.last,
                      .offset = offset,
                      .piece = piece,
                      .local = shard_count_});
    arena_.count = offset + piece * ranks_;
    shard_count_ += piece;
  }
}

size_t ShardLayout::unit_of(int64_t id) const {
  const auto unit = std::partition_point(units_.begin(), units_.end(),
                                         [&](const ShardUnit& each) { return each.last_id < id; });
  CHECK(unit != units_.end() && unit->first_id <= id);
  return static_cast<size_t>(unit - units_.begin());
}

std::vector<ShardSlice> ShardLayout::slices(int64_t index) const {
  std::vector<ShardSlice> slices;
  for (const ShardUnit& unit : units_) {
    const ShardSlice slice{
        .offset = unit.offset + index * unit.piece, .local = unit.local, .count = unit.piece};
    if (!slices.empty() && slices.back().offset + slices.back().count == slice.offset) {
      slices.back().count += slice.count;
    } else {
      slices.push_back(slice);
    }
  }
  return slices;
}

std::vector<ShardSlice> slices_within(const std::vector<ShardSlice>& slices, int64_t begin,
                                      int64_t end) {
  return cut(slices, &ShardSlice::local, begin, end);
}

std::vector<ShardSlice> offsets_within(const std::vector<ShardSlice>& slices, int64_t begin,
                                       int64_t end) {
  return cut(slices, &ShardSlice::offset, begin, end);
}

}  // namespace lockstep
