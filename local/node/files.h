#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Writes the whole file. kUnavailable names the file and the cause (for example a full disk).
Status write_file(const std::string& file, std::string_view content);
// Like write_file(), but only this user can read the file.
Status write_private_file(const std::string& file, std::string_view content);
// Like mkdir -p; new folders get mode 0700.
Status make_private_folder(const std::string& folder);
// Returns the last `bytes_max` bytes; empty if the file does not exist.
std::string end_of_file(const std::string& file, size_t bytes_max);

}  // namespace lockstep::local
