#include "kernels/ops/cuda_ops.h"

namespace lockstep::kernels {

Result<const OpTable*> cuda_ops() {
  return unavailable("[ops] this build has no CUDA support");
}

}  // namespace lockstep::kernels
