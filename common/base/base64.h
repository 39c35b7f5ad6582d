#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// Encodes bytes as padded base64, as in a Secret's data. Source: RFC 4648, section 4.
std::string base64_encode(std::string_view bytes);
// Decodes padded base64. kInvalid if the text is not whole, padded groups of the alphabet.
Result<std::string> base64_decode(std::string_view text);

}  // namespace lockstep
