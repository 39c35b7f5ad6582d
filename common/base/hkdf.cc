#include "common/base/hkdf.h"

#include <string>

namespace lockstep {

Digest hkdf_sha256(std::string_view salt, std::string_view secret, std::string_view info) {
  return hkdf_expand(hmac_sha256(salt, secret), info);
}

Digest hkdf_expand(const Digest& secret, std::string_view info) {
  constexpr char kFirstBlock = 1;
  return hmac_sha256(bytes_view(secret), std::string(info) + kFirstBlock);
}

std::string_view bytes_view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace lockstep
