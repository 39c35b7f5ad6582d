#pragma once

#include <string_view>

#include "common/base/sha256.h"

namespace lockstep {

// Derives a key of 32 bytes from `secret` for the use that `info` names. Source: RFC 5869, with
// SHA-256.
Digest hkdf_sha256(std::string_view salt, std::string_view secret, std::string_view info);

// Its second half, HKDF-Expand, for one block: derives a key from a secret that is a key already.
Digest hkdf_expand(const Digest& secret, std::string_view info);

// Returns the digest's own bytes, which live as long as the digest.
std::string_view bytes_view(const Digest& digest);

}  // namespace lockstep
