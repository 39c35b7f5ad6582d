#include "agent/train/data/idx_header.h"

#include <string>

namespace lockstep::train {
namespace {

constexpr size_t kMagicBytes = 4;
constexpr size_t kDimBytes = 4;
constexpr uint8_t kUnsignedByte = 0x08;
constexpr uint8_t kSignedByte = 0x09;
constexpr size_t kDimsMax = 8;
constexpr int64_t kElementsMax = int64_t{1} << 48;

uint8_t byte_at(std::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

int64_t dim_at(std::string_view bytes, size_t at) {
  int64_t dim = 0;
  for (size_t i = 0; i < kDimBytes; ++i) dim = dim << 8 | byte_at(bytes, at + i);
  return dim;
}

Error bad(size_t offset, const std::string& found, const std::string& expected) {
  return invalid("offset " + std::to_string(offset) + ": found " + found + ", expected " +
                 expected);
}

}  // namespace

bool is_idx(std::string_view beginning) {
  return beginning.size() >= kMagicBytes && beginning[0] == 0 && beginning[1] == 0;
}

Result<NpyHeader> parse_idx_header(std::string_view beginning, uint64_t file_bytes) {
  if (!is_idx(beginning)) return bad(0, "other bytes", "two zero bytes, as an IDX file begins");
  const uint8_t type = byte_at(beginning, 2);
  if (type != kUnsignedByte && type != kSignedByte) {
    return bad(2, "type " + std::to_string(type), "8 (unsigned bytes) or 9 (signed bytes)");
  }
  const size_t dims = byte_at(beginning, 3);
  if (dims < 1 || dims > kDimsMax) {
    return bad(3, std::to_string(dims) + " dims", "1 to " + std::to_string(kDimsMax));
  }
  NpyHeader header{.type = type == kUnsignedByte ? NpyType::kU1 : NpyType::kI1,
                   .shape = {},
                   .data_begin = kMagicBytes + dims * kDimBytes};
  if (beginning.size() < header.data_begin) {
    return bad(beginning.size(), "the end of the file",
               "a header of " + std::to_string(header.data_begin) + " bytes");
  }
  int64_t elements = 1;
  for (size_t i = 0; i < dims; ++i) {
    const size_t offset = kMagicBytes + i * kDimBytes;
    const int64_t dim = dim_at(beginning, offset);
    if (dim == 0 || dim > kElementsMax / elements) {
      return bad(offset, "a dim of " + std::to_string(dim),
                 "dims above 0 with at most 2^48 values together");
    }
    elements *= dim;
    header.shape.push_back(dim);
  }
  const uint64_t expected = header.data_begin + static_cast<uint64_t>(elements);
  if (file_bytes == expected) return header;
  return bad(static_cast<size_t>(file_bytes), "the end of the file",
             std::to_string(expected) + " bytes, as its header says");
}

}  // namespace lockstep::train
