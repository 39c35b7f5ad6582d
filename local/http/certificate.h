#pragma once

#include "common/base/result.h"
#include "common/http/tls.h"

namespace lockstep::local {

using http::CertificatePem;

// Makes a self-signed server certificate for this machine: `localhost`, 127.0.0.1 and ::1, ECDSA on
// P-256, valid from one hour ago for one year. It is its own CA: clients trust exactly this
// certificate. The system's random generator makes the key. kInternal if OpenSSL fails.
// Source: RFC 5280.
Result<CertificatePem> make_local_certificate();

}  // namespace lockstep::local
