#include "cli/tokenize/gpt2_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/tokenize/unicode_class.h"
#include "common/base/random.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, gpt2_word_bytes(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

TEST(UnicodeClass, KnowsLettersNumbersAndSpaces) {
  for (const uint32_t letter : {0x41u, 0x7Au, 0xAAu, 0xE9u, 0x3B1u, 0x5D0u, 0x4E2Du, 0x10400u}) {
    EXPECT_EQ(class_of(letter), CharacterClass::kLetter) << letter;
  }
  for (const uint32_t number : {0x30u, 0x39u, 0xB2u, 0xBCu, 0x660u, 0x2160u, 0x3007u}) {
    EXPECT_EQ(class_of(number), CharacterClass::kNumber) << number;
  }
  for (const uint32_t space : {0x09u, 0x0Du, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x2028u, 0x3000u}) {
    EXPECT_EQ(class_of(space), CharacterClass::kSpace) << space;
  }
  for (const uint32_t other :
       {0x00u, 0x1Cu, 0x5Fu, 0x200Bu, 0x301u, 0x1F600u, 0xE000u, 0x10FFFFu}) {
    EXPECT_EQ(class_of(other), CharacterClass::kOther) << other;
  }
}

// By hand, after the pattern.
TEST(Gpt2Words, AreTheMatchesOfThePattern) {
  const struct {
    std::string text;
    std::vector<std::string> words;
  } cases[] = {
      {"Hello world", {"Hello", " world"}},
      {"a  b", {"a", " ", " b"}},
      {"a   b ", {"a", "  ", " b", " "}},
      {"a\n\nb", {"a", "\n", "\n", "b"}},
      {"a \n b", {"a", " \n", " b"}},
      {"a\n", {"a", "\n"}},
      {"   ", {"   "}},
      {"it's we'll they've I'd I'm you're can't",
       {"it", "'s", " we", "'ll", " they", "'ve", " I", "'d", " I", "'m", " you", "'re", " can",
        "'t"}},
      {"'sx", {"'s", "x"}},
      {"IT'S", {"IT", "'", "S"}},
      {"x ''s", {"x", " ''", "s"}},
      {" 'tis", {" '", "tis"}},
      {"abc123 45", {"abc", "123", " 45"}},
      {"a, b...c!", {"a", ",", " b", "...", "c", "!"}},
      {"$5.00", {"$", "5", ".", "00"}},
      {"snake_case", {"snake", "_", "case"}},
      {"caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87\xE3\x80\x82",
       {"caf\xC3\xA9", " \xE4\xB8\xAD\xE6\x96\x87", "\xE3\x80\x82"}},
      {"x\xC2\xA0y", {"x", "\xC2\xA0", "y"}},
      {"x\xC2\xA0\xC2\xA0y", {"x", "\xC2\xA0", "\xC2\xA0", "y"}},
      {"\xC2\xBD cup", {"\xC2\xBD", " cup"}},
      {"a\xFF\xFE z", {"a", "\xFF\xFE", " z"}},
      {"a\xC3", {"a", "\xC3"}},
      {std::string("a\0b", 3), {"a", std::string("\0", 1), "b"}},
      {"e\xCC\x81", {"e", "\xCC\x81"}},
  };
  for (const auto& [text, words] : cases) EXPECT_EQ(words_of(text), words) << text;
}

std::string random_text(Random& random) {
  const std::string parts[] = {"a",
                               "b",
                               "'s",
                               "'re",
                               "'",
                               "\"",
                               " ",
                               "  ",
                               "\n",
                               "1",
                               "23",
                               ".",
                               "_",
                               "\xC3\xA9",
                               "\xE4\xB8\xAD",
                               "\xC2\xA0",
                               "\xE2\x80\x94",
                               "\xFF",
                               "\xC3",
                               std::string("\0", 1),
                               "\t"};
  std::string text;
  for (uint64_t i = 1 + random.below(40); i > 0; --i) text += parts[random.below(std::size(parts))];
  return text;
}

TEST(Gpt2Words, ACutNeverChangesThem) {
  int cuts = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const std::string text = random_text(random);
    const std::string_view seen = std::string_view(text).substr(0, random.below(text.size() + 1));
    const size_t cut = gpt2_cut(seen);
    if (cut == 0) continue;
    ++cuts;
    std::vector<std::string> apart = words_of(std::string_view(text).substr(0, cut));
    std::ranges::copy(words_of(std::string_view(text).substr(cut)), std::back_inserter(apart));
    ASSERT_EQ(apart, words_of(text)) << "seed " << seed << ", cut at " << cut;
  }
  EXPECT_GT(cuts, 1000);
}

TEST(Gpt2Words, TheCutIsNearTheEndOrFarBack) {
  EXPECT_EQ(gpt2_cut("the words of a text"), 14u);  // the last 4 bytes may go on
  const std::string run(1 << 17, 'x');
  EXPECT_EQ(gpt2_cut(run), 0u);
  EXPECT_EQ(gpt2_cut("word " + run), 4u);
  EXPECT_EQ(gpt2_cut(""), 0u);
  EXPECT_EQ(gpt2_cut("a b"), 0u);
}

}  // namespace
}  // namespace lockstep::cli
