// Any bytes as an IDX file: the header is refused, or says exactly where the file's values are.
#include <string_view>

#include "agent/train/data/idx_header.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto header = lockstep::train::parse_idx_header(bytes, size);
  if (!header.ok()) {
    CHECK(!header.error().message.empty());
    return 0;
  }
  uint64_t values = 1;
  for (const int64_t dim : header->shape) values *= static_cast<uint64_t>(dim);
  CHECK(header->data_begin + values == size);
  return 0;
}
