#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"

namespace lockstep {

// Helpers of yaml.cc that do not need the parser.

// Checks that the text is valid UTF-8 without the characters that YAML forbids; kInvalid with line
// and column. (yaml-cpp 0.7.0 takes the byte 4 for the end of the text and would silently drop the
// rest.)
Status check_yaml_text(std::string_view text);

// Converts a scalar, with its tag as yaml-cpp reports it ("?" plain, "!" quoted), by the core
// schema of YAML 1.2. Plain null, true, 12, 0o14, 0xc, 1.5 and the like are converted; everything
// else is text. kInvalid for values JSON cannot hold (.inf, .nan), for 0644 (octal in YAML 1.1,
// decimal in 1.2), and for other tags.
Result<Json> yaml_scalar(std::string_view tag, const std::string& text);

bool yaml_collection_tag_is_known(std::string_view tag);

}  // namespace lockstep
