#include <gtest/gtest.h>

#include <algorithm>

#include "cli/tokenize/sentencepiece_model.h"
#include "common/base/random.h"
#include "common/text/piece_merger.h"

namespace lockstep::cli {
namespace {

using Ids = std::vector<uint32_t>;

class Lines final : public SentenceSource {
 public:
  explicit Lines(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  Result<bool> next(std::string& sentence) override {
    if (next_ == lines_.size()) return false;
    sentence = lines_[next_++];
    return true;
  }

 private:
  std::vector<std::string> lines_;
  size_t next_ = 0;
};

std::vector<std::string> some_lines() {
  std::vector<std::string> words = {"in", "the", "beginning", "heaven", "caf\xC3\xA9"};
  Random random(5);
  while (words.size() < 100) {
    std::string word;
    for (uint64_t n = 1 + random.below(4); n > 0; --n) {
      word += "bdgklmnrst"[random.below(10)];
      word += "aeiou"[random.below(5)];
    }
    words.push_back(word);
  }
  std::vector<std::string> lines;
  for (int i = 0; i < 400; ++i) {
    std::string line;
    for (uint64_t n = 3 + random.below(10); n > 0; --n) {
      line += (line.empty() ? "" : " ") + words[random.below(words.size())];
    }
    lines.push_back(line);
  }
  return lines;
}

Result<std::string> train(SentencepieceKind kind, int64_t vocabulary) {
  Lines lines(some_lines());
  return train_sentencepiece({.kind = kind, .vocabulary = vocabulary}, lines);
}

std::unique_ptr<Tokenizer> trained(SentencepieceKind kind) {
  const Result<std::string> model = train(kind, 340);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return *make_sentencepiece_tokenizer(*model);
}

Ids encode(const Tokenizer& tokenizer, const TextChunk& chunk) {
  Ids ids;
  EXPECT_TRUE(tokenizer.encoder()->encode(chunk, ids).ok());
  return ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const uint32_t id : ids) text += tokenizer.pieces().piece(id);
  return text;
}

std::string random_text(uint64_t seed) {
  const std::string parts[] = {
      "the ", "beginning", " heaven", "caf\xC3\xA9",  "\xE4\xB8\xAD",     "\n",
      "\n\n", "  ",        "\t",      "\xE2\x96\x81", "\xF0\x9F\x98\x80", "Q7"};
  Random random(seed);
  std::string text;
  for (uint64_t i = random.below(40); i > 0; --i) {
    if (random.below(5) == 0) {
      text += static_cast<char>(random.below(256));
    } else {
      text += parts[random.below(std::size(parts))];
    }
  }
  return text;
}

class SentencepieceTest : public testing::TestWithParam<SentencepieceKind> {};

TEST_P(SentencepieceTest, AnyBytesComeBackFromATrainedModel) {
  const auto tokenizer = trained(GetParam());
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = random_text(seed);
    ASSERT_EQ(decode(*tokenizer, encode(*tokenizer, {text})), text) << "seed " << seed;
  }
}

TEST_P(SentencepieceTest, CharactersWithoutAPieceBecomeBytes) {
  const auto tokenizer = trained(GetParam());
  const Ids ids = encode(*tokenizer, {"\xE4\xB8\xAD"});
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(tokenizer->id_of("<0xE4>"), ids[0]);
  EXPECT_EQ(tokenizer->pieces().piece(ids[2]), "\xAD");
  EXPECT_LT(encode(*tokenizer, {"in the beginning heaven in the"}).size(), 25u);
}

TEST_P(SentencepieceTest, ACutDoesNotChangeTheTokens) {
  const auto tokenizer = trained(GetParam());
  int cuts = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = random_text(seed);
    const size_t cut = tokenizer->cut(text);
    if (cut == 0) continue;
    ++cuts;
    Ids apart = encode(*tokenizer, {std::string_view(text).substr(0, cut)});
    std::ranges::copy(encode(*tokenizer, {std::string_view(text).substr(cut), false}),
                      std::back_inserter(apart));
    ASSERT_EQ(apart, encode(*tokenizer, {text})) << "seed " << seed << ", cut at " << cut;
  }
  EXPECT_GT(cuts, 100);
}

TEST_P(SentencepieceTest, TheSameSentencesGiveTheSameModel) {
  EXPECT_EQ(*train(GetParam(), 320), *train(GetParam(), 320));
}

TEST_P(SentencepieceTest, ControlPiecesStandForNoText) {
  const auto tokenizer = trained(GetParam());
  EXPECT_EQ(tokenizer->pieces().count(), 340);
  const int64_t end = tokenizer->id_of("</s>");
  ASSERT_GE(end, 0);
  EXPECT_EQ(tokenizer->pieces().piece(end), "");
  EXPECT_EQ(tokenizer->id_of("<none>"), -1);
  EXPECT_GE(tokenizer->id_of("<unk>"), 0);
}

TEST_P(SentencepieceTest, AVocabularyThatTheTextCannotFillIsRefused) {
  const Result<std::string> model = train(GetParam(), 100'000);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, Code::kInvalid);
  EXPECT_NE(model.error().message.find("sentencepiece: "), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SentencepieceTest,
                         testing::Values(SentencepieceKind::kBpe, SentencepieceKind::kUnigram),
                         [](const auto& one) {
                           return one.param == SentencepieceKind::kBpe ? "Bpe" : "Unigram";
                         });

TEST(Sentencepiece, ThePieceTableAloneGivesABpeModelsTokens) {
  const auto tokenizer = trained(SentencepieceKind::kBpe);
  const PieceMerger merger(tokenizer->pieces());
  int different = 0;
  for (const std::string& line : some_lines()) {
    const Ids ids = encode(*tokenizer, {line});
    const PieceMerger::Encoded encoded = merger.encode(line);
    different += std::ranges::equal(encoded.ids, ids) ? 0 : 1;
  }
  EXPECT_EQ(different, 0);
}

TEST(Sentencepiece, BrokenModelsAreRefused) {
  const std::string good = *train(SentencepieceKind::kBpe, 320);
  for (const std::string& bad : {std::string(), std::string("x"), std::string(1000, '\xFF'),
                                 good.substr(0, good.size() / 2), good.substr(1)}) {
    const Result<std::unique_ptr<Tokenizer>> made = make_sentencepiece_tokenizer(bad);
    ASSERT_FALSE(made.ok()) << bad.size();
    EXPECT_EQ(made.error().code, Code::kInvalid);
  }
}

TEST(Sentencepiece, NothingToTrainOnIsRefused) {
  Lines none({});
  const Result<std::string> model = train_sentencepiece({.vocabulary = 300}, none);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().message, "the text is empty");
}

}  // namespace
}  // namespace lockstep::cli
