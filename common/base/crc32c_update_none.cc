#include "common/base/crc32c_update.h"

namespace lockstep {

Crc32cUpdate crc32c_update_native() {
  return nullptr;
}

}  // namespace lockstep
