#include "agent/optim/clip.h"

#include <array>
#include <cmath>

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
  TRY_ASSIGN(norm.sums_, Buffer::allocate(device, 2 * sizeof(double)));
  TRY_ASSIGN(norm.workspace_, Buffer::allocate(device, kSquaredNormWorkspace));
  return norm;
}

Result<SquaredNormParts> GradientNorm::squared(Stream& stream) {
  auto* sums = static_cast<double*>(sums_.data());
  ops_->squared_norm(stream,
                     {.tensors = sharded_, .sum = sums, .workspace = workspace_.workspace()});
  ops_->squared_norm(stream,
                     {.tensors = whole_, .sum = sums + 1, .workspace = workspace_.workspace()});
  std::array<double, 2> host{};
  TRY(copy_bytes(stream, {.to = host.data(), .from = sums, .bytes = sizeof(host)}));
  TRY(stream.synchronize());
  return SquaredNormParts{.sharded = host[0], .whole = host[1]};
}

float clip_scale(double norm, double clip_norm) {
  if (clip_norm <= 0 || norm <= clip_norm) return 1.0f;
  return static_cast<float>(clip_norm / (norm + 1e-6));
}

}  // namespace lockstep
