#include "agent/model/init.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "kernels/ops/normal.h"

namespace lockstep::model {
namespace {

constexpr float kDeviation = 0.02f;

// Draws elements of a parameter that no mesh splits.
void fill_uniform(const InitialValues& values, int64_t first, std::span<float> out) {
  Random random(values.seed, static_cast<uint64_t>(values.parameter.id));
  random.seek(static_cast<uint64_t>(first));
  const float bound = 1.0f / std::sqrt(static_cast<float>(values.parameter.fan_in));
  for (float& value : out) value = (2.0f * random.uniform() - 1.0f) * bound;
}

}  // namespace

void initialise(const InitialValues& values, int64_t first, std::span<float> out) {
  const Parameter& parameter = values.parameter;
  if (parameter.init == Init::kZero || parameter.init == Init::kOne) {
    std::ranges::fill(out, parameter.init == Init::kOne ? 1.0f : 0.0f);
    return;
  }
  if (parameter.init == Init::kUniform) {
    CHECK(values.entry.count == parameter.count());
    fill_uniform(values, first, out);
    return;
  }
  float deviation = kDeviation;
  if (parameter.init == Init::kResidualNormal) {
    deviation /= std::sqrt(2.0f * static_cast<float>(values.layers));
  }
  const int64_t last = first + std::ssize(out);
  int64_t filled = first;
  const auto fill_zeros_to = [&](int64_t end) {
    std::fill(out.data() + (filled - first), out.data() + (end - first), 0.0f);
  };
  for (const ShardRun& run : shard_runs(parameter, values.entry, values.shard)) {
    const int64_t begin = std::max(first, run.local);
    const int64_t end = std::min(last, run.local + run.count);
    if (begin >= end) continue;
    fill_zeros_to(begin);
    kernels::fill_normal({.out = out.data() + (begin - first),
                          .count = end - begin,
                          .seed = values.seed,
                          .stream = static_cast<uint64_t>(parameter.id),
                          .first = static_cast<uint64_t>(run.global + begin - run.local),
                          .deviation = deviation});
    filled = end;
  }
  fill_zeros_to(last);
}

}  // namespace lockstep::model
