#include "agent/optim/clip.h"

namespace lockstep {

Result<GradientNorm> GradientNorm::create(const ModelConfig& config, const ParameterArena& arena,
                                          const float* gradients, Device device,
                                          const OpTable& ops) {
  GradientNorm norm;
  norm.ops_ = &ops;
  const std::vector<Parameter> table = parameter_table(config);
  for (const ArenaEntry& entry : arena.entries) {
    if (!entry.counted) continue;
    const bool split = table[static_cast<size_t>(entry.id)].shard_axis >= 0;
    (split ? norm.sharded_ : norm.whole_).push_back({gradients + entry.offset, entry.count});
  }
  TRY_ASSIGN(norm.workspace_, Buffer::allocate(device, kSquaredNormWorkspace));
  return norm;
}

void GradientNorm::squared(Stream& stream, double* squares) {
  ops_->squared_norm(stream,
                     {.tensors = sharded_, .sum = squares, .workspace = workspace_.workspace()});
  ops_->squared_norm(stream,
                     {.tensors = whole_, .sum = squares + 1, .workspace = workspace_.workspace()});
}

}  // namespace lockstep
