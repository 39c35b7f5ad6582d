#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/sha256.h"
#include "common/crypto/aead.h"

namespace lockstep::http {

constexpr size_t kBodyTagBytes = kAeadTagBytes;

// Returns the size of an encrypted body. An empty one stays empty.
constexpr size_t encrypted_size(size_t body) {
  return body == 0 ? 0 : body + kBodyTagBytes;
}

// Encrypts the bodies that one side of an encrypted session sends, and decrypts the other side's
// (signed_session.h). It does not tell whether a body belongs to a head: the session's macs do.
class BodyCipher {
 public:
  // `sent` and `received` are session_body_keys(). kUnavailable without OpenSSL (aead.h).
  static Result<BodyCipher> make(const Digest& sent, const Digest& received);

  // A number is used once.
  Result<std::string> encrypt(uint64_t number, std::string_view body);
  // kCorrupt if encrypt() of the other side did not make it from the same number.
  Result<std::string> decrypt(uint64_t number, std::string_view body);

 private:
  BodyCipher(const AeadKey& sent, const AeadKey& received) : sent_(sent), received_(received) {}

  // OpenSSL's state of a key takes over a kilobyte, so it is made anew for each body: a controller
  // has a session with each of 50,000 agents.
  AeadKey sent_;
  AeadKey received_;
};

}  // namespace lockstep::http
