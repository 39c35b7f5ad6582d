#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// As the data of a Secret is written. Source: RFC 4648, section 4.
std::string base64_encode(std::string_view bytes);
// kInvalid for anything but whole, padded groups of the alphabet.
Result<std::string> base64_decode(std::string_view text);

}  // namespace lockstep
