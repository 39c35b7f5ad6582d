#include "agent/parallel/shard/shard_memory.h"

#include <utility>

#include "agent/parallel/shard/block_places.h"

namespace lockstep::parallel {

ShardLayout::Cut shard_cut(const ComposeOptions& options) {
  const Sharding sharding = options.sharding.sharding;
  if (sharding == Sharding::kNone) return {};
  return {.ranks = options.sharding.ranks,
          .unit_bytes = sharding == Sharding::kParameters ? 0 : options.bucket_bytes,
          .ties_stages = options.mesh.pipeline > 1};
}

ShardLayout shard_layout(const ComposeOptions& options) {
  return {options.design, arena_of(options), shard_cut(options)};
}

ShardMemory shard_memory(const ComposeOptions& options) {
  const ShardLayout layout = shard_layout(options);
  const Sharding sharding = options.sharding.sharding;
  const bool is_bf16 = options.precision == kernels::Precision::kBf16;
  const bool gathers = sharding == Sharding::kParameters;
  const int64_t whole = layout.arena().count;
  ShardMemory memory{.parameters = gathers ? layout.shard_count() : whole,
                     .copies = is_bf16 && !gathers ? whole : 0,
                     .gradients = sharding >= Sharding::kGradients ? layout.shard_count() : whole,
                     .state = layout.shard_count()};
  if (sharding >= Sharding::kGradients) {
    memory.unit_gradients = gradient_places(options.design, layout).count;
  }
  if (gathers) {
    if (options.sharding.gathers_bf16) memory.copies = layout.shard_count();
    memory.gathered = parameter_places(options.design, blocks_of(chunks_of(options)), layout,
                                       options.sharding.reshard_after_forward)
                          .count;
    if (is_bf16 || options.sharding.gathers_bf16) memory.gathered_copies = memory.gathered;
  }
  if (options.sharding.reduces_bf16 && options.mesh.data > 1) {
    memory.travelling = sharding >= Sharding::kGradients ? memory.unit_gradients : whole;
  }
  if (options.offload.offload != Offload::kNone) std::swap(memory.state, memory.far_states);
  if (options.offload.offload == Offload::kParameters) {
    std::swap(memory.parameters, memory.far_parameters);
  }
  return memory;
}

}  // namespace lockstep::parallel
