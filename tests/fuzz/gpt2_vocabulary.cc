// A vocab.json.
#include "cli/tokenize/gpt2_vocabulary.h"

#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<cli::Gpt2Pieces> pieces = cli::parse_gpt2_vocabulary(fuzz::fuzz_text(data, size));
  if (!pieces.ok()) {
    CHECK(pieces.error().code == Code::kInvalid && !pieces.error().message.empty());
    return 0;
  }
  CHECK(pieces->bytes.size() == pieces->ids.size());
  for (const auto& [token, id] : pieces->ids) {
    CHECK(!pieces->bytes[static_cast<size_t>(id)].empty());
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto id = static_cast<size_t>(pieces->byte_ids[byte]);
    CHECK(pieces->bytes[id] == std::string(1, static_cast<char>(byte)));
  }
  return 0;
}
