// Data with a table of pieces: what is refused, and how many bytes its tokens stand for.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "agent/train/data/open_data.h"
#include "agent/train/data/token_bytes.h"
#include "agent/train/input_check.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

class PiecesTest : public testing::Test {
 protected:
  PiecesTest() {
    std::string tokens;
    for (int i = 0; i < 100; ++i) tokens += std::string{static_cast<char>(i % 4), '\0'};
    const std::string pieces[] = {"", "a", " the", "\xC3"};
    table_ = PieceTable::create(pieces)->format();
    train_.model = {.layers = 1, .width = 8, .heads = 1, .context = 8, .vocabulary = 6};
    train_.data = {.path = folder_.write("text.u16", tokens),
                   .tokenizer = "u16",
                   .pieces = folder_.write("text.pieces", table_),
                   .validationFraction = 0.1};
  }

  std::optional<int64_t> bytes_held_back() {
    const Result<OpenedData> data = open_data(train_.data, model_design(train_));
    EXPECT_TRUE(data.ok()) << data.error().message;
    const Result<std::optional<int64_t>> bytes = validation_bytes(*data);
    EXPECT_TRUE(bytes.ok());
    return *bytes;
  }

  TemporaryFolder folder_;
  TrainSpec train_;
  std::string table_;
};

TEST_F(PiecesTest, TheBytesOfTheTokensThatAreHeldBackAreCounted) {
  EXPECT_EQ(bytes_held_back(), 2 * 0 + 2 * 1 + 3 * 4 + 3 * 1);  // of 2, 3, 0, 1, ..., 2, 3
  train_.data.validationFraction = 0;
  EXPECT_EQ(bytes_held_back(), std::nullopt);
  train_.data.validationFraction = 0.1;
  train_.data.pieces = "";
  EXPECT_EQ(bytes_held_back(), std::nullopt);
  train_.data.tokenizer = "bytes";
  train_.model.vocabulary = 256;
  EXPECT_EQ(bytes_held_back(), 20);
}

TEST_F(PiecesTest, TokensWithoutAPieceCountNothing) {
  train_.data.path = folder_.write("text.u16", std::string(200, '\5'));
  train_.model.vocabulary = 2000;
  EXPECT_EQ(bytes_held_back(), std::nullopt);
}

TEST_F(PiecesTest, TablesThatDoNotFitAreNamedByTheirField) {
  EXPECT_EQ(input_problems(train_), Problems());
  const std::string at = "spec.train.data.pieces: " + train_.data.pieces;
  train_.model.vocabulary = 4;
  EXPECT_EQ(input_problems(train_), Problems());
  folder_.write("text.pieces", table_ + "x");
  EXPECT_EQ(input_problems(train_),
            Problems{at + ": byte 43: the file ends, expected 42 bytes for 4 pieces of 6 bytes"});
  const std::vector<std::string> more(5, "a");
  folder_.write("text.pieces", PieceTable::create(more)->format());
  EXPECT_EQ(input_problems(train_),
            Problems{at + ": found 5 pieces, expected at most the model's vocabulary of 4"});
  train_.data.pieces = folder_.file("none");
  ASSERT_EQ(input_problems(train_).size(), 1u);
  EXPECT_TRUE(
      input_problems(train_)[0].starts_with("spec.train.data.pieces: " + train_.data.pieces));
}

}  // namespace
}  // namespace lockstep::train
