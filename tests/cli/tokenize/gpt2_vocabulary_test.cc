#include "cli/tokenize/gpt2_vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/tokenize/small_gpt2.h"

namespace lockstep::cli {
namespace {

TEST(Gpt2Vocabulary, TokensAreWrittenInAnAlphabetOfBytes) {
  const Result<Gpt2Pieces> pieces =
      parse_gpt2_vocabulary(small_gpt2({{" ", "t"}, {"\n", "\xC3"}}).vocabulary.dump());
  ASSERT_TRUE(pieces.ok()) << pieces.error().message;
  ASSERT_EQ(pieces->bytes.size(), 259u);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(pieces->bytes[static_cast<size_t>(byte)], std::string(1, static_cast<char>(byte)));
    EXPECT_EQ(pieces->byte_ids[static_cast<size_t>(byte)], byte);
  }
  EXPECT_EQ(pieces->bytes[256], " t");
  EXPECT_EQ(pieces->bytes[257], "\n\xC3");
  // As in GPT-2's own file: a space is U+0120, a newline U+010A.
  EXPECT_EQ(pieces->ids.at("\xC4\xA0t"), 256);
  EXPECT_EQ(pieces->ids.at("\xC4\x8A\xC3\x83"), 257);
  EXPECT_EQ(pieces->ids.at("<|end|>"), 258);
}

std::string vocabulary_error(const std::string& text) {
  const Result<Gpt2Pieces> pieces = parse_gpt2_vocabulary(text);
  if (pieces.ok()) return "";
  EXPECT_EQ(pieces.error().code, Code::kInvalid);
  return pieces.error().message;
}

TEST(Gpt2Vocabulary, WhatIsWrongIsNamed) {
  const Json good = small_gpt2({}).vocabulary;
  const auto with = [&](const std::string& token, const Json& id) {
    Json changed = good;
    changed[token] = id;
    return changed.dump();
  };
  EXPECT_EQ(vocabulary_error(good.dump()), "");
  EXPECT_EQ(vocabulary_error("[1]"), "expected a JSON object from tokens to ids");
  EXPECT_EQ(vocabulary_error("{}"), "expected a JSON object from tokens to ids");
  EXPECT_NE(vocabulary_error("{\"a\": 0,").find("byte"), std::string::npos);
  EXPECT_NE(vocabulary_error("{\"a\": 0, \"a\": 1}").find("\"a\""), std::string::npos);
  EXPECT_EQ(vocabulary_error(with("xy", 300)),
            "token \"xy\": found the id 300, expected 0 to 257 in a vocabulary of 258 tokens");
  EXPECT_EQ(vocabulary_error(with("xy", -1)),
            "token \"xy\": found the id -1, expected 0 to 257 in a vocabulary of 258 tokens");
  EXPECT_EQ(vocabulary_error(with("xy", "1")),
            "token \"xy\": found the id \"1\", expected 0 to 257 in a vocabulary of 258 tokens");
  EXPECT_EQ(vocabulary_error(with("xy", 65)), "token \"xy\": another token has its id 65");
  EXPECT_EQ(vocabulary_error(with("x y", 257)),
            "token \"x y\": expected characters of GPT-2's alphabet of bytes");
  EXPECT_EQ(vocabulary_error(with("\xE4\xB8\xAD", 257)),
            "token \"\xE4\xB8\xAD\": expected characters of GPT-2's alphabet of bytes");
  EXPECT_EQ(vocabulary_error(with("", 257)),
            "token \"\": expected characters of GPT-2's alphabet of bytes");
  EXPECT_NE(vocabulary_error(with(std::string(1025, 'x'), 257)).find("found 1025 bytes"),
            std::string::npos);
  Json lacking = good;
  lacking.erase("A");
  lacking["AA"] = 65;
  EXPECT_EQ(vocabulary_error(lacking.dump()), "no token stands for the byte 65 alone");
}

TEST(Gpt2Vocabulary, MergesAreTwoTokensALine) {
  const SmallGpt2 small = small_gpt2({{"a", "b"}, {"ab", "c"}});
  const Gpt2Pieces pieces = *parse_gpt2_vocabulary(small.vocabulary.dump());
  for (const std::string& text :
       {small.merges, std::string("a b\nab c"), std::string("a b\r\nab c\r\n")}) {
    const Result<std::vector<Gpt2Merge>> merges = parse_gpt2_merges(text, pieces);
    ASSERT_TRUE(merges.ok()) << merges.error().message;
    ASSERT_EQ(merges->size(), 2u);
    EXPECT_EQ((*merges)[1].left, 256);
    EXPECT_EQ((*merges)[1].right, 'c');
    EXPECT_EQ((*merges)[1].merged, 257);
  }
  const struct {
    std::string text;
    std::string message;
  } cases[] = {
      {"#version: 0.2\na\n", "line 2: found \"a\", expected two tokens with a space between"},
      {"a b\n\nab c\n", "line 2: found \"\", expected two tokens with a space between"},
      {"a b c\n", "line 1: found \"a b c\", expected two tokens with a space between"},
      {"a b\n#version: 0.2\n", "line 2: the vocabulary has no token \"#version:\""},
      {"a b\nab d\n", "line 2: the vocabulary has no token \"abd\""},
      {" a\n", "line 1: the vocabulary has no token \"\""},
      {"a b\nab c\na b\n", "line 3: an earlier line has this pair"},
      {"\xFF x\n", "line 1: the vocabulary has no token \"\xEF\xBF\xBD\""},
  };
  for (const auto& [text, message] : cases) {
    const Result<std::vector<Gpt2Merge>> merges = parse_gpt2_merges(text, pieces);
    ASSERT_FALSE(merges.ok()) << text;
    EXPECT_EQ(merges.error().code, Code::kInvalid);
    EXPECT_EQ(merges.error().message, message);
  }
  EXPECT_EQ(parse_gpt2_merges("", pieces)->size(), 0u);
}

}  // namespace
}  // namespace lockstep::cli
