#include "common/http/bearer_token.h"

#include "common/base/sha256.h"

namespace lockstep::http {

bool has_bearer_token(const Head& head, std::string_view token) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view given = head.field("Authorization");
  if (!given.starts_with(kScheme)) return false;
  // Digests have equal lengths.
  return equal_constant_time(hex(sha256(given.substr(kScheme.size()))), hex(sha256(token)));
}

}  // namespace lockstep::http
