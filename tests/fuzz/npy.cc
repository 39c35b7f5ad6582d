// A whole .npy file.
#include "agent/train/data/npy_header.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::fuzz_text(data, size);
  const Result<train::NpyHeader> header = train::parse_npy_header(bytes, size);
  if (!header.ok()) {
    CHECK(header.error().code == Code::kInvalid && !header.error().message.empty());
    return 0;
  }
  CHECK(header->rows() > 0 && header->columns() > 0);
  const auto values = static_cast<uint64_t>(header->rows() * header->columns());
  CHECK(header->data_begin + values * train::npy_type_bytes(header->type) == size);
  return 0;
}
