#include "common/text/piece_table.h"

#include <gtest/gtest.h>

#include "common/base/crc32c.h"

namespace lockstep {
namespace {

std::string u32(uint32_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

std::string with_checksum(const std::string& file) {
  return file + u32(crc32c(file.data(), file.size()));
}

// The file of docs/formats.md, field by field.
std::string file_of(uint32_t count, uint32_t text_bytes, const std::string& rest) {
  return with_checksum("LSPIECE1" + u32(count) + u32(text_bytes) + rest);
}

const std::string kPieces[] = {"", "a", std::string("\0\xFF", 2), " the"};

TEST(PieceTable, ItsFileIsTheDocumentedOne) {
  const Result<PieceTable> table = PieceTable::create(kPieces);
  ASSERT_TRUE(table.ok());
  const std::string expected =
      file_of(4, 7, u32(0) + u32(1) + u32(3) + u32(7) + "a" + std::string("\0\xFF", 2) + " the");
  EXPECT_EQ(table->format(), expected);
  EXPECT_EQ(table->format().size(), 16u + 4 * 4 + 7 + 4);
}

TEST(PieceTable, WhatItFormatsItParses) {
  const Result<PieceTable> table = PieceTable::parse(PieceTable::create(kPieces)->format());
  ASSERT_TRUE(table.ok()) << table.error().message;
  ASSERT_EQ(table->count(), 4);
  for (int64_t id = 0; id < 4; ++id) EXPECT_EQ(table->piece(id), kPieces[id]);
}

TEST(PieceTable, BrokenFilesAreNamedWithOffsetAndReason) {
  const std::string good = PieceTable::create(kPieces)->format();
  std::string changed = good;
  changed[33] ^= 1;
  const struct {
    std::string file;
    std::string message;
  } cases[] = {
      {"", "byte 0: not a piece table, expected LSPIECE1"},
      {"LSPIECE2" + good.substr(8), "byte 0: not a piece table, expected LSPIECE1"},
      {good.substr(0, 19), "byte 19: the file ends, expected at least 20 bytes"},
      {good.substr(0, 40), "byte 40: the file ends, expected 43 bytes for 4 pieces of 7 bytes"},
      {good + "x", "byte 44: the file ends, expected 43 bytes for 4 pieces of 7 bytes"},
      {changed, "byte 39: the checksum is not that of the bytes before it"},
      {file_of(0, 0, ""), "byte 8: found 0 pieces, expected 1 to 16777216"},
      {file_of(16777217, 0, ""), "byte 8: found 16777217 pieces, expected 1 to 16777216"},
      {file_of(1, 1u << 31, ""),
       "byte 12: found 2147483648 bytes of pieces, expected at most 268435456"},
      {file_of(2, 3, u32(2) + u32(1) + "abc"),
       "byte 20: piece 1 ends at 1, expected from 2 to 1026 and at most 3"},
      {file_of(1, 3, u32(4) + "abc"),
       "byte 16: piece 0 ends at 4, expected from 0 to 1024 and at most 3"},
      {file_of(1, 1025, u32(1025) + std::string(1025, 'a')),
       "byte 16: piece 0 ends at 1025, expected from 0 to 1024 and at most 1025"},
      {file_of(1, 3, u32(2) + "abc"), "byte 16: the last piece ends at 2, expected 3"},
  };
  for (const auto& [file, message] : cases) {
    const Result<PieceTable> table = PieceTable::parse(file);
    ASSERT_FALSE(table.ok()) << message;
    EXPECT_EQ(table.error().code, Code::kInvalid);
    EXPECT_EQ(table.error().message, message);
  }
}

TEST(PieceTable, LimitsApplyToWhatIsWritten) {
  EXPECT_FALSE(PieceTable::create({}).ok());
  const std::string pieces[] = {"a", std::string(PieceTable::kPieceBytesMax, 'b'), ""};
  EXPECT_TRUE(PieceTable::create(pieces).ok());
  const std::string longer[] = {"a", std::string(PieceTable::kPieceBytesMax + 1, 'b')};
  const Result<PieceTable> refused = PieceTable::create(longer);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(
      refused.error().message,
      "piece 1: found 1025 bytes, expected at most 1024, and at most 268435456 in all pieces");
}

}  // namespace
}  // namespace lockstep
