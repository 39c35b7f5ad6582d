#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep::node {

// Reads a whole file of at most bytes_max bytes and strips trailing white space. kNotFound,
// kUnavailable.
Result<std::string> read_small_file(const std::string& path, size_t bytes_max = 4096);

// Replaces the file, so that readers see either the old or the new one. Only the owner may read it.
// Its folder must exist.
Status write_file_atomically(const std::string& path, std::string_view text);

// Creates the folder and its parents.
Status make_folders(const std::string& path);

// Overwrites a file in place; creates it only if `create`. For the kubelet's termination log, which
// is a mount of its own and cannot be replaced by rename.
Status overwrite_file(const std::string& path, std::string_view text, bool create);

}  // namespace lockstep::node
