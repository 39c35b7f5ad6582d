#include "common/text/piece_merger.h"

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace lockstep {
namespace {

PieceTable table_of(const std::vector<std::string>& pieces) {
  return *PieceTable::create(pieces);
}

std::string decode(const PieceTable& table, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += table.piece(id);
  return text;
}

TEST(PieceMerger, MergesThePairWithTheLowestIdFirst) {
  const PieceTable table = table_of({"a", "b", "c", "bc", "ab", "abc"});
  const PieceMerger merger(table);
  EXPECT_EQ(merger.encode("abc").ids, (std::vector<int32_t>{5}));  // a bc, not ab c
  EXPECT_EQ(merger.encode("abbc").ids, (std::vector<int32_t>{4, 3}));
  EXPECT_EQ(merger.encode("cab").ids, (std::vector<int32_t>{2, 4}));
  EXPECT_EQ(merger.encode("").ids, (std::vector<int32_t>{}));
}

TEST(PieceMerger, BeginsWithCharactersAndElseWithBytes) {
  // As in a sentencepiece model: bytes, merges, then single characters.
  const PieceTable table = table_of({"", "\xC3", "\xA9", "\xA8", "t\xC3\xA9", "t", "\xC3\xA9"});
  const PieceMerger merger(table);
  EXPECT_EQ(merger.encode("t\xC3\xA9").ids, (std::vector<int32_t>{4}));
  EXPECT_EQ(merger.encode("\xC3\xA8").ids, (std::vector<int32_t>{1, 3}));
}

TEST(PieceMerger, TheLaterOfTwoEqualPiecesCounts) {
  const PieceTable table = table_of({"a", "b", "a"});
  EXPECT_EQ(PieceMerger(table).encode("ab").ids, (std::vector<int32_t>{2, 1}));
}

TEST(PieceMerger, BytesWithoutAPieceAreDroppedAndNothingMergesOverThem) {
  const PieceTable table = table_of({"a", "b", "ab"});
  const PieceMerger::Encoded encoded = PieceMerger(table).encode("axb\xC3\xA9");
  EXPECT_EQ(encoded.ids, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(encoded.dropped, 3);
}

TEST(PieceMerger, AnyBytesComeBackFromATableWithAllBytes) {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  pieces.insert(pieces.end(), {"th", "the", " the", "\xC3\xA9", "aa", "aaaa"});
  const PieceTable table = table_of(pieces);
  const PieceMerger merger(table);
  Random random(7);
  const std::string alphabet = "the aa\xC3\xA9";
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (uint64_t i = random.below(60); i > 0; --i) {
      text += random.below(4) > 0 ? alphabet[random.below(alphabet.size())]
                                  : static_cast<char>(random.below(256));
    }
    const PieceMerger::Encoded encoded = merger.encode(text);
    EXPECT_EQ(decode(table, encoded.ids), text);
    EXPECT_EQ(encoded.dropped, 0);
  }
}

TEST(PieceMerger, ALongTextTakesNoQuadraticTime) {
  const PieceTable table = table_of({"a", "aa", "aaaa"});
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(PieceMerger(table).encode(text).ids.size(), text.size() / 4);
}

}  // namespace
}  // namespace lockstep
