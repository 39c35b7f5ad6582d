#pragma once

#include "common/base/sha256.h"

namespace lockstep {

// Returns 32 bytes from the system's source of randomness, which nobody can predict.
Digest random_nonce();

}  // namespace lockstep
