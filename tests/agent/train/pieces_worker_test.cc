// Whole workers on tokens with a table of pieces.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/text/piece_merger.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSteps = 200;
constexpr int64_t kVocabulary = 270;  // more than there are pieces

// All bytes, then words of the text.
PieceTable make_pieces() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  for (const char* piece : {"an", "and", "th", "the", "er", "ere", " w", "as", " was", "God"}) {
    pieces.emplace_back(piece);
  }
  return *PieceTable::create(pieces);
}

struct Tokens {
  std::string file;  // u16
  std::vector<int32_t> ids;
};

Tokens encode(const PieceTable& pieces, const std::string& text) {
  Tokens tokens;
  tokens.ids = PieceMerger(pieces).encode(text).ids;
  for (const int32_t id : tokens.ids) {
    tokens.file += {static_cast<char>(id & 0xFF), static_cast<char>(id >> 8)};
  }
  return tokens;
}

WorkerWorld::Options options(const TemporaryFolder& folder, int64_t nodes) {
  const PieceTable pieces = make_pieces();
  WorkerWorld::Options options{.nodes = nodes};
  TrainSpec& train = options.train;
  train.model = {.layers = 1, .width = 32, .heads = 2, .context = 32, .vocabulary = kVocabulary};
  train.data = {.path = folder.write("text.u16", encode(pieces, easy_text(20'000)).file),
                .tokenizer = "u16",
                .pieces = folder.write("text.pieces", pieces.format()),
                .validationFraction = 0.05};
  train.steps = kSteps;
  train.batch = {.global = 16};
  train.optimizer = {.learningRate = 5e-3};
  train.sample = {.tokens = 30, .prompt = "and the ", .temperature = 0};
  return options;
}

TEST(PiecesWorker, TheSampleIsText) {
  const TemporaryFolder folder;
  WorkerWorld world(options(folder, 1));
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::string sample = read_file(world.checkpoints() + "/sample.txt");
  EXPECT_EQ(sample.substr(0, 8), "and the ");
  EXPECT_EQ(sample.find_first_not_of("abcdefghijklmnopqrstuvwxyzG .\n"), std::string::npos)
      << sample;
  // At least one piece of several bytes among the 30.
  EXPECT_GT(sample.size(), 8u + 30 + 1) << sample;
}

TEST(PiecesWorker, TheLossPerByteIsThatPerTokenOverTheBytesOfAToken) {
  const TemporaryFolder folder;
  WorkerWorld world(options(folder, 2));
  ASSERT_NO_FATAL_FAILURE(world.run());
  const PieceTable pieces = make_pieces();
  const std::vector<int32_t> ids = encode(pieces, easy_text(20'000)).ids;
  const auto held_back = static_cast<size_t>(std::llround(0.05 * static_cast<double>(ids.size())));
  double bytes = 0;
  for (size_t i = ids.size() - held_back; i < ids.size(); ++i) {
    bytes += static_cast<double>(pieces.piece(ids[i]).size());
  }
  ASSERT_GT(bytes, 1.2 * static_cast<double>(held_back));
  const double loss = world.metric("validationLoss").back();
  const double per_byte = world.metric("validationLossPerByte").back();
  EXPECT_NEAR(per_byte, loss * static_cast<double>(held_back) / bytes, 1e-9);
  EXPECT_EQ(world.progress(0).validation_loss_per_byte, per_byte);
  EXPECT_EQ(world.progress(1).validation_loss_per_byte, per_byte);
}

TEST(PiecesWorker, WithoutPiecesNothingIsToldPerByteAndTheSampleHasIds) {
  const TemporaryFolder folder;
  WorkerWorld::Options without = options(folder, 1);
  without.train.data.pieces = "";
  without.train.sample.prompt = "97 98";
  without.train.steps = 2;
  WorkerWorld world(without);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.metric("validationLoss").size(), 1u);
  EXPECT_EQ(world.metric("validationLossPerByte").size(), 0u);
  EXPECT_EQ(read_file(world.checkpoints() + "/sample.txt").substr(0, 6), "97 98 ");
}

}  // namespace
}  // namespace lockstep::train
