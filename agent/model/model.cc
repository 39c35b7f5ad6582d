#include "agent/model/model.h"

namespace lockstep::model {

kernels::DType activation_dtype(kernels::DeviceType device, kernels::Precision precision) {
  const bool is_half =
      device == kernels::DeviceType::kCuda && precision == kernels::Precision::kBf16;
  return is_half ? kernels::DType::kBf16 : kernels::DType::kF32;
}

Status MicroBatch::backward_weights(int64_t, GradSink&) {
  return internal("[model] this model's backward has no second part");
}

}  // namespace lockstep::model
