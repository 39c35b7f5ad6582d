#include "controller/kube/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <vector>

#include "controller/kube/bearer_token_file.h"

namespace lockstep::kube {
namespace {

constexpr size_t kCertificatesMax = 1000;
constexpr size_t kPemBytesMax = 4u << 20;

template <class T, void (*release)(T*)>
struct Release {
  void operator()(T* value) const { release(value); }
};
using Certificate = std::unique_ptr<X509, Release<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY, EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Release<X509_STORE, X509_STORE_free>>;
using Bytes = std::unique_ptr<BIO, Release<BIO, BIO_free_all>>;

std::string openssl_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown reason" : reason;
}

int no_password(char*, int, int, void*) {
  return 0;
}

Bytes reader(const std::string& text) {
  return Bytes(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Result<std::vector<Certificate>> read_certificates(const std::string& pem) {
  if (pem.size() > kPemBytesMax) return invalid("expected at most 4 MiB of certificates");
  const Bytes bytes = reader(pem);
  std::vector<Certificate> certificates;
  while (certificates.size() < kCertificatesMax) {
    Certificate one(PEM_read_bio_X509_AUX(bytes.get(), nullptr, no_password, nullptr));
    if (!one) break;
    certificates.push_back(std::move(one));
  }
  ERR_clear_error();
  if (certificates.empty()) return invalid("expected a certificate in PEM format, found none");
  return certificates;
}

Result<Key> read_key(const std::string& pem) {
  const Bytes bytes = reader(pem);
  Key key(PEM_read_bio_PrivateKey(bytes.get(), nullptr, no_password, nullptr));
  if (!key)
    return invalid("expected an unencrypted private key in PEM format: " + openssl_reason());
  return key;
}

std::shared_ptr<SSL_SESSION> copy_of(SSL_SESSION& session) {
  return {SSL_SESSION_dup(&session), SSL_SESSION_free};
}

// Data for verifying a connection; owned by the context.
struct Verifier {
  std::string name;
  std::shared_ptr<TlsShared> shared;
  Digest made_with{};  // for TlsSessions: of authorities and client certificate
};

void free_verifier(void*, void* verifier, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<Verifier*>(verifier);
}

int verifier_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_verifier);
  return index;
}

bool is_address(const std::string& name) {
  in6_addr address{};
  return ::inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

// Replaces OpenSSL's own verification, and thus any callback that was set for single certificates.
int verify_chain(X509_STORE_CTX* chain, void* context) {
  const auto* verifier = static_cast<const Verifier*>(
      SSL_CTX_get_ex_data(static_cast<SSL_CTX*>(context), verifier_index()));
  X509_VERIFY_PARAM* rules = X509_STORE_CTX_get0_param(chain);
  X509_VERIFY_PARAM_set_hostflags(
      rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  const int is_set = is_address(verifier->name)
                         ? X509_VERIFY_PARAM_set1_ip_asc(rules, verifier->name.c_str())
                         : X509_VERIFY_PARAM_set1_host(rules, verifier->name.c_str(), 0);
  X509_STORE_CTX_set_verify_cb(chain, [](int ok, X509_STORE_CTX*) { return ok; });
  if (is_set == 1 && X509_verify_cert(chain) == 1) return 1;
  const int error = X509_STORE_CTX_get_error(chain);
  std::string text = "the server's certificate was rejected: ";
  text += X509_verify_cert_error_string(error);
  if (error == X509_V_ERR_HOSTNAME_MISMATCH || error == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    text += " (it is not valid for " + verifier->name + ")";
  }
  verifier->shared->report.set(std::move(text));
  return 0;
}

const Verifier* verifier_of(const SSL* connection) {
  return static_cast<const Verifier*>(
      SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), verifier_index()));
}

// Sets the session and the SNI name before the first message.
void on_state(const SSL* connection, int where, int) {
  if ((where & SSL_CB_HANDSHAKE_START) == 0) return;
  const Verifier* verifier = verifier_of(connection);
  // After the handshake, TLS 1.3 reports the start of further messages too.
  if (verifier == nullptr || SSL_in_before(connection) != 1) return;
  SSL* starting = const_cast<SSL*>(connection);
  if (const auto session = verifier->shared->sessions.find(verifier->made_with)) {
    SSL_set_session(starting, session.get());
  }
  if (is_address(verifier->name)) return;
  SSL_set_tlsext_host_name(starting, verifier->name.c_str());
}

int on_session(SSL* connection, SSL_SESSION* session) {
  const Verifier* verifier = verifier_of(connection);
  verifier->shared->sessions.keep(*session, verifier->made_with);
  return 0;  // the session stays the connection's
}

Status trust(SSL_CTX* context, const std::string& pem) {
  TRY_ASSIGN(const std::vector<Certificate> certificates, read_certificates(pem));
  Store store(X509_STORE_new());
  if (!store) return internal("[tls] out of memory");
  for (const Certificate& one : certificates) X509_STORE_add_cert(store.get(), one.get());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN);
  SSL_CTX_set_cert_store(context, store.release());
  return {};
}

// Returns the authorities that are trusted now; empty for the system's.
Result<std::string> trust_authorities(SSL_CTX* context, const TlsOptions& options) {
  if (!options.ca_file.empty()) {
    Result<std::string> pem = read_small_file(options.ca_file, kPemBytesMax);
    const Status status = pem.ok() ? trust(context, *pem) : Status(pem.error());
    if (status.ok()) return pem;
    if (options.ca_pem.empty()) return status.error();
  }
  if (!options.ca_pem.empty()) TRY(trust(context, options.ca_pem));
  return options.ca_pem;
}

Status use_certificate(SSL_CTX* context, const std::string& certificate_pem,
                       const std::string& key_pem) {
  TRY_ASSIGN(std::vector<Certificate> chain, read_certificates(certificate_pem));
  TRY_ASSIGN(const Key key, read_key(key_pem));
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1) {
    return invalid("could not use the client certificate: " + openssl_reason());
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add_extra_chain_cert(context, chain[i].get()) == 1) chain[i].release();
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return invalid("the client's key does not match its certificate: " + openssl_reason());
  }
  return {};
}

}  // namespace

void TlsReport::set(std::string text) {
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}

std::string TlsReport::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(text_, {});
}

// Copies, since a connection that ends without a farewell spoils its session for all others.
void TlsSessions::keep(SSL_SESSION& session, const Digest& made_with) {
  const std::lock_guard lock(mutex_);
  session_ = copy_of(session);
  made_with_ = made_with;
}

std::shared_ptr<SSL_SESSION> TlsSessions::find(const Digest& made_with) {
  const std::lock_guard lock(mutex_);
  return session_ && made_with == made_with_ ? copy_of(*session_) : nullptr;
}

void TlsSessions::forget() {
  const std::lock_guard lock(mutex_);
  session_.reset();
}

Status configure_tls(SSL_CTX* context, const TlsOptions& options,
                     std::shared_ptr<TlsShared> shared) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  TRY_ASSIGN(const std::string authorities, trust_authorities(context, options));
  auto verifier = std::make_unique<Verifier>(
      Verifier{.name = options.server_name,
               .shared = std::move(shared),
               .made_with = sha256(authorities + '\0' + options.certificate_pem)});
  if (SSL_CTX_set_ex_data(context, verifier_index(), verifier.get()) != 1) {
    return internal("[tls] out of memory");
  }
  verifier.release();
  SSL_CTX_set_cert_verify_callback(context, verify_chain, context);
  SSL_CTX_set_info_callback(context, on_state);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
  SSL_CTX_sess_set_new_cb(context, on_session);
  if (options.certificate_pem.empty()) return {};
  return use_certificate(context, options.certificate_pem, options.key_pem);
}

Status check_client_certificate(const std::string& certificate_pem, const std::string& key_pem) {
  if (certificate_pem.empty() && key_pem.empty()) return {};
  TRY_ASSIGN(const std::vector<Certificate> chain, read_certificates(certificate_pem));
  TRY_ASSIGN(const Key key, read_key(key_pem));
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    return invalid("the key does not match the certificate: " + openssl_reason());
  }
  return {};
}

bool reread_client_certificate(TlsOptions& options) {
  TlsOptions read = options;
  const std::pair<const std::string&, std::string&> parts[] = {
      {options.certificate_file, read.certificate_pem}, {options.key_file, read.key_pem}};
  for (const auto& [file, pem] : parts) {
    if (file.empty()) continue;
    Result<std::string> text = read_small_file(file, kPemBytesMax);
    if (!text.ok()) return false;
    pem = *std::move(text);
  }
  if (read.certificate_pem == options.certificate_pem && read.key_pem == options.key_pem) {
    return false;
  }
  if (!check_client_certificate(read.certificate_pem, read.key_pem).ok()) return false;
  options = std::move(read);
  return true;
}

Status check_certificate_authority(const std::string& pem) {
  return read_certificates(pem).ok() ? Status() : Status(read_certificates(pem).error());
}

}  // namespace lockstep::kube
