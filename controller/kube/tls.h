#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "common/base/result.h"

using SSL_CTX = struct ssl_ctx_st;

namespace lockstep {

// Whom a client trusts, and as whom it comes.
struct TlsOptions {
  std::string ca_file;  // PEM, read anew for each connection, so that it may be rotated
  std::string ca_pem;   // while the file can't be used; of both empty: the system's authorities,
                        // else none but these
  std::string server_name;  // that the certificate must be for, and that is asked for (SNI)
  bool verify = true;
  std::string certificate_pem;  // the client's, with its chain; empty: none
  std::string key_pem;
  // Where these came from, so that a client looks for another pair; empty: not from a file.
  std::string certificate_file;
  std::string key_file;
};

// What was wrong with the last certificate, in words: a handshake alone says only that it failed.
// Thread-safe.
class TlsReport {
 public:
  void set(std::string text);
  std::string take();

 private:
  std::mutex mutex_;
  std::string text_;
};

// Prepares a context for connections to `options.server_name` (a name or an address): TLS 1.2 or
// newer; a certificate is for that name by its subjectAltName alone; a certificate in the CA file
// is trusted as it is, also an intermediate or the server's own. Verification is complete in here,
// whatever callback the caller installs, so that it fails closed. Nothing is asked of a terminal: a
// key with a password is refused. kInvalid for PEM that can't be used. Source: RFC 6125, RFC 2818.
Status configure_tls(SSL_CTX* context, const TlsOptions& options,
                     std::shared_ptr<TlsReport> report);

// Whether certificate and key are PEM that fit together; both empty: yes.
Status check_client_certificate(const std::string& certificate_pem, const std::string& key_pem);
// Reads what came from files again. True if there is another pair now, which fits; one that can't
// be read, or of which only half is there yet, changes nothing.
bool reread_client_certificate(TlsOptions& options);
// Whether there is at least one certificate in it.
Status check_certificate_authority(const std::string& pem);

}  // namespace lockstep
