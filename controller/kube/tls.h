#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "common/base/result.h"
#include "common/base/sha256.h"

using SSL_CTX = struct ssl_ctx_st;
using SSL_SESSION = struct ssl_session_st;

namespace lockstep::kube {

// The servers a client trusts, and its own identity.
struct TlsOptions {
  std::string ca_file;  // PEM, read again for each connection, so that it may be rotated
  // Used while the file can't be. If both are empty, the system's authorities are trusted, else
  // only these.
  std::string ca_pem;
  std::string server_name;  // the certificate must be for this name, which is also sent as SNI
  bool verify = true;
  std::string certificate_pem;  // the client's, with its chain; empty: none
  std::string key_pem;
  // Files of the certificate and the key, to look for another pair; empty: not from a file.
  std::string certificate_file;
  std::string key_file;
};

// Why the last certificate was refused, in words: a handshake only says that it failed.
// Thread-safe.
class TlsReport {
 public:
  void set(std::string text);
  std::string take();

 private:
  std::mutex mutex_;
  std::string text_;
};

// The newest session with a server, so that its next connections need no signature and send no
// certificates. A session is found only by what it was made with: the authorities that verified the
// server, and the client's certificate. Thread-safe. Source: RFC 8446, section 2.2.
class TlsSessions {
 public:
  void keep(SSL_SESSION& session, const Digest& made_with);
  // Returns nullptr if there is none.
  std::shared_ptr<SSL_SESSION> find(const Digest& made_with);
  void forget();

 private:
  std::mutex mutex_;
  std::shared_ptr<SSL_SESSION> session_;
  Digest made_with_{};
};

// Shared by the connections of a client.
struct TlsShared {
  TlsReport report;
  TlsSessions sessions;
};

// Prepares a context for connections to `options.server_name` (a name or an address), with TLS 1.2
// or newer. The server's certificate must be for that name by its subjectAltName alone. Each
// certificate in the CA file is trusted as it is, even an intermediate or the server's own.
// Verification is complete in here, whatever callback the caller installs, so that it fails closed.
// Never prompts on a terminal: a key with a password is refused. kInvalid for PEM that can't be
// used. Source: RFC 6125, RFC 2818.
Status configure_tls(SSL_CTX* context, const TlsOptions& options,
                     std::shared_ptr<TlsShared> shared);

// Checks that certificate and key are PEM that fit together; both may be empty.
Status check_client_certificate(const std::string& certificate_pem, const std::string& key_pem);
// Reads certificate and key again if they came from files. Returns true if there is another pair
// now that fits. Changes nothing if a file can't be read, or if only half of the pair is there yet.
bool reread_client_certificate(TlsOptions& options);
// Checks that there is at least one certificate in `pem`.
Status check_certificate_authority(const std::string& pem);

}  // namespace lockstep::kube
