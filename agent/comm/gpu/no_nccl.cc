#include "agent/comm/gpu/nccl_api.h"

namespace lockstep::comm {

Result<std::shared_ptr<NcclApi>> load_nccl() {
  return unavailable("[nccl] this build has no NCCL support");
}

}  // namespace lockstep::comm
