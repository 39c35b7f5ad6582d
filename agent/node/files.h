#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// The whole file, at most bytes_max bytes, without blanks at its end. kNotFound, kUnavailable.
Result<std::string> read_small_file(const std::string& path, size_t bytes_max = 4096);

// Readers see the old file or the new one; only the owner may read it. Its folder exists.
Status write_file_atomically(const std::string& path, std::string_view text);

// Makes the folder and those above it.
Status make_folders(const std::string& path);

// Replaces what stands in the file, which is made only if `create`. For the kubelet's termination
// log, which is mounted by itself and can't be renamed over.
Status overwrite_file(const std::string& path, std::string_view text, bool create);

}  // namespace lockstep
