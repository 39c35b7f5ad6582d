#include "kernels/ops/cuda_ops.h"

namespace lockstep {

const OpTable* cuda_ops() {
  return nullptr;
}

}  // namespace lockstep
