#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/result.h"

namespace lockstep {

constexpr size_t kAeadKeyBytes = 16;
constexpr size_t kAeadTagBytes = 16;
using AeadKey = std::array<uint8_t, kAeadKeyBytes>;
using ConstBytes = std::span<const std::byte>;

// AES-128-GCM with one key, in one direction: it either seals or opens. One thread at a time.
// Source: NIST SP 800-38D. OpenSSL computes it; in a build without OpenSSL there is a twin file
// that can only refuse.
class Aead {
 public:
  virtual ~Aead() = default;
  // Encrypts the parts, one after the other, and writes them and a tag to `into`, which does not
  // overlap them. The tag also covers `head`. A key takes each number once. kInternal if OpenSSL
  // fails.
  virtual Status seal(uint64_t number, ConstBytes head, std::span<const ConstBytes> parts,
                      std::byte* into) = 0;
  // Decrypts what seal() wrote to `into`, which does not overlap it. kCorrupt if that is not what
  // was sealed with this key, number and head; `into` is worthless then.
  virtual Status open(uint64_t number, ConstBytes head, ConstBytes sealed, std::byte* into) = 0;
};

// kUnavailable, with a reason for users, if this build has no OpenSSL.
Status can_encrypt();
Result<std::unique_ptr<Aead>> make_sealing_aead(const AeadKey& key);
Result<std::unique_ptr<Aead>> make_opening_aead(const AeadKey& key);

}  // namespace lockstep
