#include "common/base/sha256_block.h"

namespace lockstep {

Sha256Block sha256_block_native() {
  return nullptr;
}

}  // namespace lockstep
