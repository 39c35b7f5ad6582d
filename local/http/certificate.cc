#include "local/http/certificate.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace lockstep::local {
namespace {

template <class T, void (*release)(T*)>
struct Release {
  void operator()(T* handle) const { release(handle); }
};
void free_bio(BIO* bio) {
  BIO_free(bio);
}
using Key = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Release<X509, X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Release<X509_EXTENSION, X509_EXTENSION_free>>;
using Memory = std::unique_ptr<BIO, Release<BIO, free_bio>>;

constexpr long kVersion3 = 2;
constexpr int kSerialBits = 127;
constexpr long kHourSeconds = 3600;
constexpr long kYearSeconds = 365L * 24 * kHourSeconds;

Error openssl_error(std::string_view what) {
  char text[256] = "no reason given";
  if (unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return internal("[certificate] " + std::string(what) + ": " + text);
}

bool add_extension(X509* certificate, int id, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  Extension extension(X509V3_EXT_conf_nid(nullptr, &context, id, value));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool set_serial(X509* certificate) {
  std::unique_ptr<BIGNUM, Release<BIGNUM, BN_free>> number(BN_new());
  return number != nullptr &&
         BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_names(X509* certificate) {
  X509_NAME* name = X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>("lockstep-local");
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1 &&
         X509_set_issuer_name(certificate, name) == 1;
}

bool fill(X509* certificate, EVP_PKEY* key) {
  return X509_set_version(certificate, kVersion3) == 1 && set_serial(certificate) &&
         set_names(certificate) &&
         X509_gmtime_adj(X509_getm_notBefore(certificate), -kHourSeconds) != nullptr &&
         X509_gmtime_adj(X509_getm_notAfter(certificate), kYearSeconds) != nullptr &&
         X509_set_pubkey(certificate, key) == 1 &&
         add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
         add_extension(certificate, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
         add_extension(certificate, NID_ext_key_usage, "serverAuth") &&
         add_extension(certificate, NID_subject_key_identifier, "hash") &&
         add_extension(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1") &&
         X509_sign(certificate, key, EVP_sha256()) > 0;
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  long bytes = BIO_get_mem_data(memory, &data);
  return std::string(data, static_cast<size_t>(bytes));
}

}  // namespace

Result<CertificatePem> make_local_certificate() {
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return openssl_error("making the key");
  Certificate certificate(X509_new());
  if (certificate == nullptr || !fill(certificate.get(), key.get()))
    return openssl_error("making the certificate");
  Memory certificate_pem(BIO_new(BIO_s_mem()));
  Memory key_pem(BIO_new(BIO_s_mem()));
  if (certificate_pem == nullptr || key_pem == nullptr ||
      PEM_write_bio_X509(certificate_pem.get(), certificate.get()) != 1 ||
      PEM_write_bio_PrivateKey(key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
          1)
    return openssl_error("writing PEM");
  return CertificatePem{text_of(certificate_pem.get()), text_of(key_pem.get())};
}

}  // namespace lockstep::local
