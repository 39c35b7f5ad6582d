#pragma once

#include <cstdint>
#include <string_view>

#include "agent/train/data/npy_header.h"
#include "common/base/result.h"

namespace lockstep::train {

// The header of an IDX file: two zero bytes, a type, the number of dims, then each dim as a
// big-endian 32-bit integer. The array's values follow. Source: LeCun et al., "The MNIST database
// of handwritten digits", file formats.

// Returns whether the bytes begin as no .npy file does, but as an IDX file.
bool is_idx(std::string_view beginning);

// Reads the header of a file of `file_bytes` bytes that begins with `beginning`: at least the
// header, or the whole file. Only unsigned and signed bytes are read, which MNIST's files have; the
// shape may not be empty, and the file has exactly the array's bytes. kInvalid, with the offset,
// what was found and what would be right, without the file's name; never throws.
Result<NpyHeader> parse_idx_header(std::string_view beginning, uint64_t file_bytes);

}  // namespace lockstep::train
