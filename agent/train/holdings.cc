#include "agent/train/holdings.h"

#include <utility>

namespace lockstep::train {
namespace {

// Workspace is left out: it belongs to operations, whatever ranks share.
constexpr std::pair<kernels::ArenaUse, uint64_t Holdings::*> kNumbers[] = {
    {kernels::ArenaUse::kParameters, &Holdings::parameters_bytes},
    {kernels::ArenaUse::kGradients, &Holdings::gradients_bytes},
    {kernels::ArenaUse::kOptimizer, &Holdings::optimizer_bytes},
    {kernels::ArenaUse::kGathered, &Holdings::gathered_bytes},
    {kernels::ArenaUse::kActivations, &Holdings::activations_bytes}};

}  // namespace

Holdings holdings_of(const parallel::ComposeOptions& options, const parallel::MemoryPlan& memory) {
  Holdings holdings{.sharding_ranks = options.sharding.ranks};
  holdings.offloaded_bytes = memory.offloaded_bytes;
  for (const auto& [use, number] : kNumbers) {
    holdings.*number = kernels::bytes_of(memory.device, use);
  }
  return holdings;
}

}  // namespace lockstep::train
