#include "agent/comm/collective.h"

namespace lockstep::comm {

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kOneRoot:
      return "one-root";
    case Algorithm::kHalving:
      return "halving";
    case Algorithm::kByHost:
      return "by-host";
    case Algorithm::kByHostHalving:
      return "by-host-halving";
  }
  return "an unknown algorithm";
}

const CollectiveTraits& traits(Collective kind) {
  // Indexed by the operation's number.
  static constexpr CollectiveTraits kTraits[kCollectives + 1] = {
      {},
      {.name = "forming"},
      {.name = "barrier"},
      {.name = "broadcast", .has_root = true},
      {.name = "all_reduce", .reduces = true},
      {.name = "all_gather", .has_blocks = true},
      {.name = "reduce", .reduces = true, .has_root = true},
      {.name = "reduce_scatter", .reduces = true, .has_blocks = true},
      {.name = "scatter", .has_root = true, .has_blocks = true},
      {.name = "gather", .has_root = true, .has_blocks = true},
      {.name = "all_to_all", .has_blocks = true},
      {.name = "send", .is_message = true},
      {.name = "receive", .is_message = true},
  };
  const auto number = static_cast<size_t>(kind);
  return kTraits[number <= kCollectives ? number : 0];
}

}  // namespace lockstep::comm
