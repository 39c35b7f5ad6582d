#include "kernels/ops/cuda_ops.h"

namespace lockstep {

Result<const OpTable*> cuda_ops() {
  return unavailable("[ops] a build with CUDA, this one has none");
}

}  // namespace lockstep
