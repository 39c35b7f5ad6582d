#include "agent/train/same_start.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/compose.h"

namespace lockstep::train {
namespace {

// Returns what each rank gets if it has the digest of its letter.
std::vector<Status> compare(const std::string& letters) {
  auto world = comm::make_thread_world(static_cast<int>(letters.size())).value();
  std::vector<Status> answers(letters.size());
  std::vector<std::jthread> ranks;
  for (size_t rank = 0; rank < letters.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      answers[rank] = expect_same_draws(*world[rank], sha256(letters.substr(rank, 1)));
    });
  }
  ranks.clear();
  return answers;
}

TEST(SameStart, PassesWhereAllRanksDrawTheSame) {
  for (const Status& answer : compare("aaa")) EXPECT_TRUE(answer.ok());
}

TEST(SameStart, NamesTheRanksThatDifferFromMost) {
  const struct {
    std::string letters;
    std::string named;
  } cases[] = {{"aaba", "rank 2 drew others"},
               {"baaa", "rank 0 drew others"},
               {"ab", "rank 1 drew others"},
               {"abaca", "ranks 1, 3 drew others"},
               {"aaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbb",
                "18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33 and 1 more drew"}};
  for (const auto& c : cases) {
    const std::vector<Status> answers = compare(c.letters);
    for (size_t rank = 0; rank < answers.size(); ++rank) {
      ASSERT_FALSE(answers[rank].ok()) << c.letters << " on rank " << rank;
      const std::string& message = answers[rank].error().message;
      EXPECT_NE(message.find(c.named), std::string::npos) << message;
      const bool is_usual = c.letters[rank] == 'a';
      EXPECT_EQ(answers[rank].error().blame, is_usual ? Blame::kPeer : Blame::kUnknown)
          << c.letters << " on " << rank;
    }
  }
}

TEST(SameStart, TheDigestFollowsSeedAndModel) {
  const ModelConfig config{1, 16, 1, 8, 32};
  const Digest first = draws_digest(config, 1);
  EXPECT_EQ(draws_digest(config, 1), first);
  EXPECT_NE(draws_digest(config, 2), first);
  ModelConfig other = config;
  other.tied = false;
  EXPECT_NE(draws_digest(other, 1), first);
  other = config;
  other.layers = 2;  // which also scales the draws of the first layer
  EXPECT_NE(draws_digest(other, 1), first);
  const MlpConfig mlp{.inputs = 8, .hidden = {4, 16}, .outputs = 4};
  const MlpConfig transposed{.inputs = 16, .hidden = {2, 32}, .outputs = 2};
  EXPECT_NE(draws_digest(mlp, 1), draws_digest(transposed, 1));
}

// The sample of each parameter has its first and its last values.
TEST(SameStart, TheDigestIsOfTheValuesThatACompositionBeginsWith) {
  const ModelDesign design = ModelConfig{1, 16, 1, 8, 32};
  auto world = comm::make_thread_world(1).value();
  const SystemClock clock;
  const auto model = parallel::Composition::create({.design = design,
                                                    .mesh = {},
                                                    .micro_batch = 2,
                                                    .sequence = 8,
                                                    .bucket_bytes = 4096,
                                                    .optimizer = {}},
                                                   *world.front(), clock)
                         .value();
  ASSERT_TRUE(model->initialise(1).ok());
  const std::vector<Parameter> table = parameter_table(design);
  Sha256 sha;
  for (const ArenaEntry& entry : model->state().arena->entries) {
    const auto& dims = table[static_cast<size_t>(entry.id)].dims;
    sha.update(dims.data(), sizeof(dims));
    ASSERT_LE(entry.count, 2048) << "the sample is all of it";
    sha.update(model->state().parameters + entry.offset,
               static_cast<size_t>(entry.count) * sizeof(float));
  }
  EXPECT_EQ(draws_digest(design, 1), sha.finish());
}

}  // namespace
}  // namespace lockstep::train
