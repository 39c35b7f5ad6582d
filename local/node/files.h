#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Writes the whole file; kUnavailable names the file and the cause (a full disk, ...).
Status write_file(const std::string& file, std::string_view content);
// The same, readable by this user alone.
Status write_private_file(const std::string& file, std::string_view content);
// mkdir -p with mode 0700 for what is made.
Status make_private_folder(const std::string& folder);
// The last `bytes_max` bytes; empty where there is no such file.
std::string end_of_file(const std::string& file, size_t bytes_max);

}  // namespace lockstep::local
