#include "common/base/nonce.h"

#include <sys/random.h>

#include "common/base/check.h"

namespace lockstep {

// The call is not interrupted and not cut short below 256 bytes. Source: getrandom(2).
Digest random_nonce() {
  Digest nonce{};
  CHECK(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return nonce;
}

}  // namespace lockstep
