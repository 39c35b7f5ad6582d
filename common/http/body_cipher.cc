#include "common/http/body_cipher.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

namespace lockstep::http {
namespace {

AeadKey key_of(const Digest& digest) {
  AeadKey key;
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

ConstBytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Result<BodyCipher> BodyCipher::make(const Digest& sent, const Digest& received) {
  TRY(can_encrypt());
  return BodyCipher(key_of(sent), key_of(received));
}

Result<std::string> BodyCipher::encrypt(uint64_t number, std::string_view body) {
  if (body.empty()) return std::string();
  TRY_ASSIGN(const std::unique_ptr<Aead> aead, make_sealing_aead(sent_));
  std::string into(encrypted_size(body.size()), '\0');
  const std::array<ConstBytes, 1> parts{bytes_of(body)};
  TRY(aead->seal(number, {}, parts, std::as_writable_bytes(std::span(into)).data()));
  return into;
}

Result<std::string> BodyCipher::decrypt(uint64_t number, std::string_view body) {
  if (body.empty()) return std::string();
  if (body.size() <= kBodyTagBytes) return corrupt("[session] expected an encrypted body");
  TRY_ASSIGN(const std::unique_ptr<Aead> aead, make_opening_aead(received_));
  std::string into(body.size() - kBodyTagBytes, '\0');
  TRY(aead->open(number, {}, bytes_of(body), std::as_writable_bytes(std::span(into)).data()));
  return into;
}

}  // namespace lockstep::http
