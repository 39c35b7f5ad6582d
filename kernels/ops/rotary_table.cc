#include <cmath>
#include <numbers>

#include "kernels/ops/rotary.h"

namespace lockstep::kernels {

namespace {

double frequency_of(const RotaryFrequencies& f, int64_t i) {
  const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(f.head_dim);
  const double frequency = std::pow(f.base, -exponent);
  if (f.factor == 1.0) return frequency;
  const double turns =
      static_cast<double>(f.original_context) * frequency / (2.0 * std::numbers::pi);
  if (turns < f.low_turns) return frequency / f.factor;
  if (turns > f.high_turns) return frequency;
  const double share = (turns - f.low_turns) / (f.high_turns - f.low_turns);
  return (1.0 - share) * frequency / f.factor + share * frequency;
}

}  // namespace

void rotary_table(const RotaryFrequencies& frequencies, int64_t positions, float* table) {
  const int64_t half = frequencies.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = frequency_of(frequencies, i);
    for (int64_t t = 0; t < positions; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      float* row = table + t * frequencies.head_dim;
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace lockstep::kernels
