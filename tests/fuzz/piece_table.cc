// A whole table of pieces. The checksum is corrected, which a random input would never match.
#include "common/text/piece_table.h"

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/text/piece_merger.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

std::string with_checksum(std::string file) {
  if (file.size() < 4) return file;
  const uint32_t checksum = crc32c(file.data(), file.size() - 4);
  for (size_t i = 0; i < 4; ++i) {
    file[file.size() - 4 + i] = static_cast<char>(checksum >> 8 * i & 0xFF);
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view given = fuzz::fuzz_text(data, size);
  for (const std::string& file : {std::string(given), with_checksum(std::string(given))}) {
    const Result<PieceTable> table = PieceTable::parse(file);
    if (!table.ok()) {
      CHECK(table.error().code == Code::kInvalid && table.error().message.starts_with("byte "));
      continue;
    }
    CHECK(table->format() == file);
    std::string text;
    for (int64_t id = 0; id < table->count(); ++id) text += table->piece(id);
    const PieceMerger::Encoded encoded = PieceMerger(*table).encode(text);
    std::string back;
    for (const int32_t id : encoded.ids) back += table->piece(id);
    CHECK(back.size() + static_cast<size_t>(encoded.dropped) == text.size());
    CHECK(encoded.dropped > 0 || back == text);
  }
  return 0;
}
