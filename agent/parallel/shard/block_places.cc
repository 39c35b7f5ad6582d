#include "agent/parallel/shard/block_places.h"

#include <algorithm>

namespace lockstep::parallel {
namespace {

size_t blocks_in(const ModelDesign& design) {
  return static_cast<size_t>(block_count(design));
}

// Ascending, each once.
std::vector<size_t> units_of_block(const ModelDesign& design, const ShardLayout& layout,
                                   int64_t block) {
  std::vector<size_t> units;
  for (const int64_t id : block_parameters(design, block)) units.push_back(layout.unit_of(id));
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

int64_t count_of(const ShardLayout& layout, const std::vector<size_t>& units) {
  int64_t count = 0;
  for (const size_t unit : units) count += layout.count(layout.units()[unit]);
  return count;
}

// The largest sum of two neighbours; of one if there is no other.
int64_t largest_pair(const std::vector<int64_t>& counts) {
  int64_t largest = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    largest = std::max(largest, counts[i] + (i + 1 < counts.size() ? counts[i + 1] : 0));
  }
  return largest;
}

BlockPlaces kept_places(const ModelDesign& design, const std::vector<int64_t>& blocks,
                        const ShardLayout& layout) {
  BlockPlaces result{.places = {},
                     .of_block = std::vector<std::vector<size_t>>(blocks_in(design)),
                     .count = layout.arena().count};
  for (size_t unit = 0; unit < layout.units().size(); ++unit) {
    result.places.push_back({unit, layout.units()[unit].offset});
  }
  for (const int64_t block : blocks) {
    result.of_block[static_cast<size_t>(block)] = units_of_block(design, layout, block);
  }
  return result;
}

}  // namespace

BlockPlaces parameter_places(const ModelDesign& design, const std::vector<int64_t>& blocks,
                             const ShardLayout& layout, bool frees) {
  if (!frees) return kept_places(design, blocks, layout);
  std::vector<std::vector<size_t>> units;
  std::vector<int64_t> counts;
  for (const int64_t block : blocks) {
    units.push_back(units_of_block(design, layout, block));
    counts.push_back(count_of(layout, units.back()));
  }
  BlockPlaces result{.places = {},
                     .of_block = std::vector<std::vector<size_t>>(blocks_in(design)),
                     .count = largest_pair(counts)};
  for (size_t i = 0; i < units.size(); ++i) {
    int64_t offset = i % 2 == 0 ? 0 : result.count - counts[i];
    std::vector<size_t>& places = result.of_block[static_cast<size_t>(blocks[i])];
    for (const size_t unit : units[i]) {
      places.push_back(result.places.size());
      result.places.push_back({unit, offset});
      offset += layout.count(layout.units()[unit]);
    }
  }
  return result;
}

GradientPlaces gradient_places(const ModelDesign& design, const ShardLayout& layout) {
  const std::vector<ShardUnit>& units = layout.units();
  const bool has_tied = is_tied(design) && layout.arena().find(kTokenEmbedding) != nullptr;
  const size_t own = has_tied ? 1 : 0;  // of the embedding, which is the first
  GradientPlaces result{.offsets = std::vector<int64_t>(units.size()),
                        .places = std::vector<size_t>(units.size(), 2),
                        .count = 0};
  if (own > 0) result.count = layout.count(units.front());
  std::vector<int64_t> counts;
  for (size_t i = own; i < units.size(); ++i) counts.push_back(layout.count(units[i]));
  const int64_t both = largest_pair(counts);
  for (size_t i = own; i < units.size(); ++i) {
    const bool at_begin = (i - own) % 2 == 0;
    result.places[i] = at_begin ? 0 : 1;
    result.offsets[i] = result.count + (at_begin ? 0 : both - layout.count(units[i]));
  }
  result.count += both;
  return result;
}

}  // namespace lockstep::parallel
