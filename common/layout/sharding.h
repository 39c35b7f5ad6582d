#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// The state of which each data-parallel rank keeps only its shard. Each value includes those before
// it. Sources: Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter
// models", 2020 (stages 1, 2 and 3); Zhao et al., "PyTorch FSDP", 2023.
enum class Sharding : uint8_t { kNone, kOptimizer, kGradients, kParameters };

// "none", "optimizer", "gradients", "parameters".
std::string_view sharding_name(Sharding sharding);
// kInvalid for any other name.
Result<Sharding> parse_sharding(std::string_view name);

// How the ranks of a job share the state of the model. The defaults replicate it.
struct ShardingOptions {
  Sharding sharding = Sharding::kNone;
  // Ranks that divide the state among them: a group of neighbours on the data axis, whose size this
  // divides. Groups hold the same state. 1 with kNone.
  int64_t ranks = 1;
  // With kParameters: a block's parameters are freed after its forward and gathered again for its
  // backward. Otherwise they stay until then.
  bool reshard_after_forward = true;
  bool prefetch = true;       // with kParameters: gathers the next block while one computes
  bool gathers_bf16 = false;  // with kParameters: parameters travel, and are computed with, as bf16
  bool reduces_bf16 = false;  // gradients travel, and are added, as bf16

  bool operator==(const ShardingOptions&) const = default;
};

// The state that is kept outside of the device's memory and fetched piece by piece.
enum class Offload : uint8_t {
  kNone,
  kOptimizer,   // the optimizer's states
  kParameters,  // likewise, and this rank's shard of the parameters; only with kParameters above
};

// "none", "optimizer", "parameters".
std::string_view offload_name(Offload offload);
Result<Offload> parse_offload(std::string_view name);

struct OffloadOptions {
  Offload offload = Offload::kNone;
  // A folder for a scratch file, which nobody else sees and which is gone when the process ends.
  // Empty: page-locked memory of the host on a GPU; the folder for temporary files on a CPU.
  std::string path;

  bool operator==(const OffloadOptions&) const = default;
};

// How data-parallel ranks bring their gradients together and learn the new parameters.
enum class Exchange : uint8_t {
  kAllReduce,
  kFirstRank,  // rank 0 of the group adds them up, updates, and sends the parameters
  kHost,       // likewise, in the host's memory, by the host; the ranks are on one node
  kServers,    // parameter servers do, which are other processes; the ranks exchange nothing
};

// "allReduce", "firstRank", "host", "servers". The last one is not parsed: it follows from
// spec.parameterServers.
std::string_view exchange_name(Exchange exchange);
Result<Exchange> parse_exchange(std::string_view name);

}  // namespace lockstep
