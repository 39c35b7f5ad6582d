#include "agent/train/same_start.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"

namespace lockstep::train {
namespace {

// Returns what each rank of a mesh with `shards` tensor shards gets if it holds the digest of its
// letter.
std::vector<Status> compare(const std::string& letters, int64_t shards = 1) {
  const Mesh mesh{.data = std::ssize(letters) / shards, .tensor = shards};
  auto world = comm::make_thread_world(static_cast<int>(letters.size())).value();
  std::vector<Status> answers(letters.size());
  std::vector<std::jthread> ranks;
  for (size_t rank = 0; rank < letters.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      answers[rank] = expect_same_parameters(*world[rank], mesh, sha256(letters.substr(rank, 1)));
    });
  }
  ranks.clear();
  return answers;
}

TEST(SameStart, PassesWhereAllRanksHoldTheSame) {
  for (const Status& answer : compare("aaa")) EXPECT_TRUE(answer.ok());
}

TEST(SameStart, ComparesOnlyRanksThatHoldTheSameShard) {
  for (const Status& answer : compare("ababab", 2)) EXPECT_TRUE(answer.ok());
  for (const Status& answer : compare("ababaa", 2)) {
    ASSERT_FALSE(answer.ok());
    EXPECT_NE(answer.error().message.find("rank 5 drew others"), std::string::npos);
  }
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

TEST(SameStart, TheDigestFollowsTheParameters) {
  auto world = comm::make_thread_world(1).value();
  const SystemClock clock;
  const auto model = parallel::Composition::create({.design = ModelConfig{1, 16, 1, 8, 32},
                                                    .mesh = {},
                                                    .micro_batch = 2,
                                                    .sequence = 8,
                                                    .bucket_bytes = 4096,
                                                    .optimizer = {}},
                                                   *world.front(), clock)
                         .value();
  const auto digest_of = [&](uint64_t seed) {
    EXPECT_TRUE(model->initialise(seed).ok());
    return sample_digest(*model).value();
  };
  const Digest first = digest_of(1);
  EXPECT_NE(digest_of(2), first);
  EXPECT_EQ(digest_of(1), first);
  // A value of the last parameter, a few of whose runs are read.
  const ArenaEntry& last = model->state().arena->entries.back();
  model->state().parameters[last.offset] += 1.0f;
  EXPECT_NE(sample_digest(*model).value(), first);
}

}  // namespace
}  // namespace lockstep::train
