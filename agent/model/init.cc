#include "agent/model/init.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/normal.h"

namespace lockstep::model {
namespace {

constexpr float kDeviation = 0.02f;

}  // namespace

void initialise(const InitialValues& values, int64_t first, std::span<float> out) {
  const Parameter& parameter = values.parameter;
  if (parameter.init == Init::kZero || parameter.init == Init::kOne) {
    std::ranges::fill(out, parameter.init == Init::kOne ? 1.0f : 0.0f);
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
