#include "common/api/round_members.h"

#include <algorithm>
#include <numeric>

#include "common/api/rank_list.h"
#include "common/api/training_job_fields.h"

namespace lockstep {

std::vector<int64_t> round_members(const RendezvousStatus& rendezvous, int64_t processes_per_node) {
  const int64_t nodes = rendezvous.worldSize / processes_per_node;
  const bool is_whole = rendezvous.worldSize % processes_per_node == 0;
  if (nodes < 1 || nodes > kWorldSizeMax || !is_whole) return {};
  if (rendezvous.nodeIndices.empty()) {
    std::vector<int64_t> indices(static_cast<size_t>(nodes));
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }
  Result<std::vector<int64_t>> indices = parse_ranks(rendezvous.nodeIndices, kWorldSizeMax);
  const bool fits = indices.ok() && std::ssize(*indices) == nodes &&
                    std::is_sorted(indices->begin(), indices->end());
  return fits ? *std::move(indices) : std::vector<int64_t>{};
}

std::string node_indices_text(std::span<const int64_t> indices) {
  const bool is_first_ones = !indices.empty() && indices.back() == std::ssize(indices) - 1;
  return is_first_ones ? "" : rank_list_text(indices);
}

}  // namespace lockstep
