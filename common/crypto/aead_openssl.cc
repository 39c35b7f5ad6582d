#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "common/crypto/aead.h"

namespace lockstep {
namespace {

using Nonce = std::array<uint8_t, 12>;
using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

enum class Direction : int { kOpen = 0, kSeal = 1 };  // as EVP_CipherInit_ex takes them

// The number, big-endian, after four zero bytes: each key has its own sequence of numbers.
Nonce nonce_of(uint64_t number) {
  Nonce nonce{};
  for (size_t i = 0; i < 8; ++i) nonce[11 - i] = static_cast<uint8_t>(number >> (8 * i));
  return nonce;
}

const unsigned char* in(ConstBytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* out(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

class OpensslAead final : public Aead {
 public:
  explicit OpensslAead(Context context) : context_(std::move(context)) {}

  Status seal(uint64_t number, ConstBytes head, std::span<const ConstBytes> parts,
              std::byte* into) override {
    bool done = begin(number, head);
    for (const ConstBytes part : parts) {
      if (part.empty()) continue;
      done = done && update(into, part);
      into += part.size();
    }
    int none = 0;
    done = done && EVP_CipherFinal_ex(context_.get(), out(into), &none) == 1 &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kAeadTagBytes, into) == 1;
    return done ? Status() : internal("[crypto] encrypting failed");
  }

  Status open(uint64_t number, ConstBytes head, ConstBytes sealed, std::byte* into) override {
    if (sealed.size() < kAeadTagBytes) return not_authentic();
    const ConstBytes text = sealed.first(sealed.size() - kAeadTagBytes);
    std::array<unsigned char, kAeadTagBytes> tag;
    std::copy_n(in(sealed) + text.size(), tag.size(), tag.data());
    const bool begun =
        begin(number, head) && update(into, text) &&
        EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, kAeadTagBytes, tag.data()) == 1;
    if (!begun) return internal("[crypto] decrypting failed");
    int none = 0;
    if (EVP_CipherFinal_ex(context_.get(), out(into) + text.size(), &none) != 1) {
      return not_authentic();
    }
    return {};
  }

 private:
  static Error not_authentic() { return corrupt("not authentic"); }

  // Keeps the key and the direction.
  bool begin(uint64_t number, ConstBytes head) {
    const Nonce nonce = nonce_of(number);
    int bytes = 0;
    return EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
           EVP_CipherUpdate(context_.get(), nullptr, &bytes, in(head),
                            static_cast<int>(head.size())) == 1;
  }
  bool update(std::byte* into, ConstBytes part) {
    int bytes = 0;
    return EVP_CipherUpdate(context_.get(), out(into), &bytes, in(part),
                            static_cast<int>(part.size())) == 1;
  }

  Context context_;
};

// Looked up once: with EVP_aes_128_gcm() OpenSSL would look for it whenever a key is set.
const EVP_CIPHER* cipher() {
  static const EVP_CIPHER* const kCipher = EVP_CIPHER_fetch(nullptr, "AES-128-GCM", nullptr);
  return kCipher;
}

Result<std::unique_ptr<Aead>> make(const AeadKey& key, Direction direction) {
  Context context(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  if (context == nullptr || cipher() == nullptr ||
      EVP_CipherInit_ex(context.get(), cipher(), nullptr, key.data(), nullptr,
                        static_cast<int>(direction)) != 1) {
    return internal("[crypto] OpenSSL has no AES-128-GCM");
  }
  return std::unique_ptr<Aead>(std::make_unique<OpensslAead>(std::move(context)));
}

}  // namespace

Status can_encrypt() {
  return {};
}

Result<std::unique_ptr<Aead>> make_sealing_aead(const AeadKey& key) {
  return make(key, Direction::kSeal);
}

Result<std::unique_ptr<Aead>> make_opening_aead(const AeadKey& key) {
  return make(key, Direction::kOpen);
}

}  // namespace lockstep
