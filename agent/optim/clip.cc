#include "agent/optim/clip.h"

namespace lockstep::optim {

Result<GradientNorm> GradientNorm::create(const ModelConfig& config, const ParameterArena& arena,
                                          const float* gradients, kernels::Device device,
                                          const kernels::OpTable& ops,
                                          kernels::Workspace workspace) {
  GradientNorm norm;
  norm.ops_ = &ops;
  norm.workspace_ = workspace;
  const std::vector<Parameter> table = parameter_table(config);
  for (const ArenaEntry& entry : arena.entries) {
    if (!entry.counts_in_norm) continue;
    const bool split = table[static_cast<size_t>(entry.id)].shard_axis >= 0;
    (split ? norm.sharded_ : norm.whole_).push_back({gradients + entry.offset, entry.count});
  }
  if (workspace.data == nullptr) {
    TRY_ASSIGN(norm.owned_,
               kernels::Buffer::allocate(device, kernels::kSquaredNormWorkspace, "a norm"));
    norm.workspace_ = norm.owned_.workspace();
  }
  return norm;
}

void GradientNorm::squared(kernels::Stream& stream, double* squares) {
  ops_->squared_norm(stream, {.tensors = sharded_, .sum = squares, .workspace = workspace_});
  ops_->squared_norm(stream, {.tensors = whole_, .sum = squares + 1, .workspace = workspace_});
}

}  // namespace lockstep::optim
