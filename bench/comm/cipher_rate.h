#pragma once

#include "common/base/result.h"

namespace lockstep::bench {

// Bytes per second at which one core encrypts and decrypts records (agent/comm/records.h) in its
// caches. Encrypted traffic cannot be faster.
struct CipherRate {
  double sealed = 0;
  double opened = 0;
};
// kUnavailable in a build without OpenSSL.
Result<CipherRate> measure_cipher();

}  // namespace lockstep::bench
