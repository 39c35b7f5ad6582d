#include "agent/comm/gpu/backend_choice.h"

#include <map>

#include "agent/comm/gpu/nccl_plan.h"
#include "agent/comm/message_text.h"

namespace lockstep::comm {
namespace {

// Returns why NCCL cannot serve these ranks; empty if it can.
std::string obstacle(std::span<const RankDevice> ranks) {
  std::map<std::array<uint8_t, 16>, size_t> owner;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [first, is_new] = owner.emplace(ranks[rank].uuid, rank);
    if (is_new) continue;
    return "ranks " + std::to_string(first->second) + " and " + std::to_string(rank) +
           " have the same GPU (" + ranks[rank].name.data() + ", " + ranks[rank].bus.data() + ")";
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].nccl_version == 0)
      return rank_name(static_cast<int64_t>(rank)) + " has no NCCL";
    if (ranks[rank].nccl_version == ranks[0].nccl_version) continue;
    return "rank 0 has NCCL " + nccl_version_text(ranks[0].nccl_version) + ", " +
           rank_name(static_cast<int64_t>(rank)) + " " +
           nccl_version_text(ranks[rank].nccl_version);
  }
  return "";
}

}  // namespace

Result<BackendChoice> choose_backend(std::span<const RankDevice> ranks, DeviceBackendKind wanted) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].has_gpu == 0) {
      return invalid("[comm] every rank needs a GPU, but " + rank_name(static_cast<int64_t>(rank)) +
                         " has none",
                     Blame::kConfig);
    }
  }
  if (wanted == DeviceBackendKind::kHostMemory) {
    return BackendChoice{DeviceBackendKind::kHostMemory, "requested"};
  }
  const std::string why_not = obstacle(ranks);
  if (why_not.empty()) {
    return BackendChoice{DeviceBackendKind::kNccl, "every rank has a GPU of its own and NCCL " +
                                                       nccl_version_text(ranks[0].nccl_version)};
  }
  if (wanted == DeviceBackendKind::kNccl) {
    return unavailable("[comm] NCCL was requested but cannot be used: " + why_not);
  }
  return BackendChoice{DeviceBackendKind::kHostMemory, why_not};
}

}  // namespace lockstep::comm
