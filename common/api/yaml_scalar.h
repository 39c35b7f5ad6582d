#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"

namespace lockstep {

// What yaml.cc needs beside the parser.

// Valid UTF-8 without the characters that YAML forbids; kInvalid with line and column. (To yaml-cpp
// 0.7.0 the byte 4 is the end of the text, and what follows would be lost in silence.)
Status check_yaml_text(std::string_view text);

// A scalar with its tag as yaml-cpp reports it ("?" plain, "!" quoted), by the core schema of YAML
// 1.2: null, true, 12, 0o14, 0xc, 1.5 and the like where plain, else the text. kInvalid for what
// JSON can't hold (.inf, .nan), for 0644 (octal to YAML 1.1, decimal to 1.2), and for other tags.
Result<Json> yaml_scalar(std::string_view tag, const std::string& text);

bool yaml_collection_tag_is_known(std::string_view tag);

}  // namespace lockstep
