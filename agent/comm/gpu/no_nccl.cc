#include "agent/comm/gpu/nccl_api.h"

namespace lockstep {

Result<std::shared_ptr<NcclApi>> load_nccl() {
  return unavailable("[nccl] a build with NCCL (nccl.h), this one has none");
}

}  // namespace lockstep
