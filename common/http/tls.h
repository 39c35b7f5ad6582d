#pragma once

#include <memory>
#include <string>

#include "common/base/result.h"

namespace lockstep::http {

class TlsContext;

// A certificate and its key in PEM format.
struct CertificatePem {
  std::string certificate;  // may be followed by intermediate certificates
  std::string key;
};

// Makes what ServerOptions::tls needs, for TLS 1.2 and 1.3 without renegotiation. kInvalid if
// certificate or key can't be used.
Result<std::shared_ptr<TlsContext>> make_tls_context(const CertificatePem& pem);

}  // namespace lockstep::http
