#include "common/base/hkdf.h"

#include <string>

namespace lockstep {

Digest hkdf_sha256(std::string_view salt, std::string_view secret, std::string_view info) {
  const Digest extracted = hmac_sha256(salt, secret);
  constexpr char kFirstBlock = 1;
  return hmac_sha256(bytes_view(extracted), std::string(info) + kFirstBlock);
}

std::string_view bytes_view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace lockstep
