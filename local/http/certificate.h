#pragma once

#include <string>

#include "common/base/result.h"

namespace lockstep::local {

// A certificate and its key, as PEM.
struct CertificatePem {
  std::string certificate;
  std::string key;
};

// A new self-signed certificate of a server on this machine: names `localhost` and the addresses
// 127.0.0.1 and ::1, ECDSA on P-256, valid from an hour ago for a year. It is its own authority:
// clients trust exactly this certificate. The key comes from the system's randomness.
// kInternal where OpenSSL refuses. Source: RFC 5280.
Result<CertificatePem> make_local_certificate();

}  // namespace lockstep::local
