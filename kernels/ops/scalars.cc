// Ops that compute a single number.
#include <cmath>

#include "kernels/ops/isa_table.h"

namespace lockstep::kernels {

void clip_scale(Stream&, const ClipScale& args) {
  const double norm = std::sqrt(value_of(*args.squares));
  *args.scale = clip_factor(norm, args.clip_norm);
  if (args.norm) *args.norm = static_cast<float>(norm);
}

void inverse_norm(Stream&, const InverseNorm& args) {
  *args.factor = static_cast<float>(1.0 / (std::sqrt(value_of(*args.squares)) + args.epsilon));
}

void loss_sum(Stream&, const LossSum& args) {
  double sum = 0.0;
  for (int64_t i = 0; i < args.count; ++i) sum += static_cast<double>(args.losses[i]);
  *args.sum += sum;
}

}  // namespace lockstep::kernels
