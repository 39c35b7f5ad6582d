#include "cli/tokenize/gpt2_tokenizer.h"

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "tests/cli/tokenize/small_gpt2.h"

namespace lockstep::cli {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;
using Ids = std::vector<uint32_t>;

std::unique_ptr<Tokenizer> tokenizer_of(const Merges& merges) {
  const SmallGpt2 small = small_gpt2(merges);
  Result<std::unique_ptr<Tokenizer>> made =
      make_gpt2_tokenizer({small.vocabulary.dump(), small.merges});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *std::move(made);
}

Ids encode(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  EXPECT_TRUE(tokenizer.encoder()->encode({text}, ids).ok());
  return ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const uint32_t id : ids) text += tokenizer.pieces().piece(id);
  return text;
}

TEST(Gpt2Tokenizer, MergesTheEarliestPairFirst) {
  const auto tokenizer = tokenizer_of({{"b", "c"}, {"a", "b"}, {"a", "bc"}, {" ", "abc"}});
  EXPECT_EQ(encode(*tokenizer, "abc"), (Ids{258}));
  EXPECT_EQ(encode(*tokenizer, "abab"), (Ids{257, 257}));
  EXPECT_EQ(encode(*tokenizer, " abc"), (Ids{259}));
  EXPECT_EQ(encode(*tokenizer, "x abc\nabc"), (Ids{'x', 259, '\n', 258}));
}

TEST(Gpt2Tokenizer, MergesAllPlacesOfAPairBeforeAnother) {
  // The second merge makes a pair of the first one, which is earlier, at its first place.
  const auto tokenizer = tokenizer_of({{"pq", "p"}, {"p", "q"}});
  EXPECT_EQ(encode(*tokenizer, "pqpq"), (Ids{257, 257}));
  EXPECT_EQ(encode(*tokenizer, "pqp"), (Ids{256}));
  const auto runs = tokenizer_of({{"a", "a"}, {"aa", "aa"}});
  EXPECT_EQ(encode(*runs, "aaaaaaa"), (Ids{257, 256, 'a'}));
}

TEST(Gpt2Tokenizer, NoTokenReachesOverAWord) {
  const auto tokenizer = tokenizer_of({{"a", " "}, {" ", "b"}, {"1", "a"}, {"a", "'"}});
  EXPECT_EQ(encode(*tokenizer, "a b"), (Ids{'a', 257}));
  EXPECT_EQ(encode(*tokenizer, "1a's"), (Ids{'1', 'a', '\'', 's'}));
}

TEST(Gpt2Tokenizer, AnyBytesComeBack) {
  const auto tokenizer = tokenizer_of({{"t", "h"},
                                       {"th", "e"},
                                       {" ", "the"},
                                       {"\xC3", "\xA9"},
                                       {"\n", "\n"},
                                       {"'", "s"},
                                       {"0", "0"}});
  const std::string parts[] = {"the", " the", "\xC3\xA9", "\n\n", "'s", "000", "  "};
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    std::string text;
    for (uint64_t i = random.below(50); i > 0; --i) {
      if (random.below(2) == 0) {
        text += static_cast<char>(random.below(256));
      } else {
        text += parts[random.below(std::size(parts))];
      }
    }
    const Ids ids = encode(*tokenizer, text);
    ASSERT_EQ(decode(*tokenizer, ids), text) << "seed " << seed;
    const Ids again = encode(*tokenizer, text + text);
    ASSERT_EQ(decode(*tokenizer, again), text + text) << "seed " << seed;
  }
}

TEST(Gpt2Tokenizer, PiecesThatNoMergeMakesStandForNoText) {
  const auto tokenizer = tokenizer_of({{"a", "b"}});
  EXPECT_EQ(tokenizer->id_of("<|end|>"), 257);
  EXPECT_EQ(tokenizer->id_of("<|none|>"), -1);
  EXPECT_EQ(tokenizer->pieces().count(), 258);
  EXPECT_EQ(tokenizer->pieces().piece(257), "");
  EXPECT_EQ(tokenizer->pieces().piece(256), "ab");
  EXPECT_EQ(encode(*tokenizer, "<|end|>").size(), 7u);
}

TEST(Gpt2Tokenizer, AWordOfAMegabyteTakesNoQuadraticTime) {
  const auto tokenizer = tokenizer_of({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}});
  EXPECT_EQ(encode(*tokenizer, std::string(1 << 20, 'a')).size(), size_t{1} << 17);
}

TEST(Gpt2Tokenizer, ErrorsNameTheFile) {
  const SmallGpt2 small = small_gpt2({});
  const std::string vocabulary = small.vocabulary.dump();
  EXPECT_EQ(make_gpt2_tokenizer({"{}", ""}).error().message,
            "vocab.json: expected a JSON object from tokens to ids");
  EXPECT_EQ(make_gpt2_tokenizer({vocabulary, "a"}).error().message,
            "merges.txt: line 1: found \"a\", expected two tokens with a space between");
}

}  // namespace
}  // namespace lockstep::cli
