#include "agent/model/init.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "kernels/device/parallel.h"

namespace lockstep {
namespace {

constexpr float kDeviation = 0.02f;
constexpr uint64_t kDrawsPerNormal = 2;  // of 32 bits, see Random::normal()
constexpr int64_t kGrain = 4096;

// out[i] of the run = the (global + i)-th normal number of the stream, scaled.
void fill_normal(const ShardRun& run, const Random& stream, float deviation, float* out) {
  parallel_for(run.count, kGrain, [&](Range range) {
    Random random = stream;
    random.seek(static_cast<uint64_t>(run.global + range.begin) * kDrawsPerNormal);
    for (int64_t i = range.begin; i < range.end; ++i)
      out[run.local + i] = deviation * random.normal();
  });
}

}  // namespace

void initialise_parameter(const Parameter& parameter, const ArenaEntry& entry,
                          const TensorShard& shard, int64_t layers, uint64_t seed, float* out) {
  const float constant = parameter.init == Init::kOne ? 1.0f : 0.0f;
  std::fill_n(out, entry.count, constant);
  if (parameter.init == Init::kZero || parameter.init == Init::kOne) return;
  float deviation = kDeviation;
  if (parameter.init == Init::kResidualNormal) {
    deviation /= std::sqrt(2.0f * static_cast<float>(layers));
  }
  const Random stream(seed, static_cast<uint64_t>(parameter.id));
  for (const ShardRun& run : shard_runs(parameter, entry, shard)) {
    fill_normal(run, stream, deviation, out);
  }
}

void initialise_arena(const ModelConfig& config, const ParameterArena& arena,
                      const TensorShard& shard, uint64_t seed, float* out) {
  std::fill_n(out, arena.count, 0.0f);
  const std::vector<Parameter> table = parameter_table(config);
  for (const ArenaEntry& entry : arena.entries) {
    initialise_parameter(table[static_cast<size_t>(entry.id)], entry, shard, config.layers, seed,
                         out + entry.offset);
  }
}

}  // namespace lockstep
