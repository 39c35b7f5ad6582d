#include "agent/model/init.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "kernels/device/parallel.h"

namespace lockstep {
namespace {

constexpr float kDeviation = 0.02f;
constexpr uint64_t kDrawsPerNormal = 2;  // 32-bit draws, see Random::normal()
constexpr int64_t kGrain = 4096;

// out[i] = the (begin + i)-th normal number of the stream, scaled.
void fill_normal(int64_t begin, std::span<float> out, const Random& stream, float deviation) {
  parallel_for(std::ssize(out), kGrain, [&](Range range) {
    Random random = stream;
    random.seek(static_cast<uint64_t>(begin + range.begin) * kDrawsPerNormal);
    for (int64_t i = range.begin; i < range.end; ++i) {
      out[static_cast<size_t>(i)] = deviation * random.normal();
    }
  });
}

}  // namespace

void initialise(const InitialValues& values, int64_t first, std::span<float> out) {
  const Parameter& parameter = values.parameter;
  std::ranges::fill(out, parameter.init == Init::kOne ? 1.0f : 0.0f);
  if (parameter.init == Init::kZero || parameter.init == Init::kOne) return;
  float deviation = kDeviation;
  if (parameter.init == Init::kResidualNormal) {
    deviation /= std::sqrt(2.0f * static_cast<float>(values.layers));
  }
  const Random stream(values.seed, static_cast<uint64_t>(parameter.id));
  const int64_t last = first + std::ssize(out);
  for (const ShardRun& run : shard_runs(parameter, values.entry, values.shard)) {
    const int64_t begin = std::max(first, run.local);
    const int64_t end = std::min(last, run.local + run.count);
    if (begin >= end) continue;
    fill_normal(run.global + begin - run.local,
                out.subspan(static_cast<size_t>(begin - first), static_cast<size_t>(end - begin)),
                stream, deviation);
  }
}

void initialise_arena(const ModelConfig& config, const ParameterArena& arena,
                      const TensorShard& shard, uint64_t seed, float* out) {
  std::fill_n(out, arena.count, 0.0f);
  const std::vector<Parameter> table = parameter_table(config);
  for (const ArenaEntry& entry : arena.entries) {
    initialise({.parameter = table[static_cast<size_t>(entry.id)],
                .entry = entry,
                .shard = shard,
                .layers = config.layers,
                .seed = seed},
               0, {out + entry.offset, static_cast<size_t>(entry.count)});
  }
}

}  // namespace lockstep
