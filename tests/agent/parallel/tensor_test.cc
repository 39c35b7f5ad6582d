// Ranks that share the tensors of every layer train the model of one rank.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kGpt = small_gpt(2);
constexpr ModelConfig kLlama = small_llama(2, 4);
constexpr ModelConfig kBert = small_bert(2);

std::string name_of(const Mesh& mesh) {
  return "data " + std::to_string(mesh.data) + ", tensor " + std::to_string(mesh.tensor);
}

class Meshes : public testing::TestWithParam<Mesh> {};

TEST_P(Meshes, TrainTheModelOfOneRank) {
  const Mesh mesh = GetParam();
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    const Trained alone = train(options_for(design, {}, 1));
    for (const Sharding sharding :
         {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
      SCOPED_TRACE(std::string(family_name(design)) + ", " + std::string(sharding_name(sharding)));
      ComposeOptions options = options_for(design, mesh, 2);
      options.sharding.sharding = sharding;
      options.sharding.ranks = sharding == Sharding::kNone ? 1 : mesh.data;
      expect_close(design, alone, train(options));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tensor, Meshes,
                         testing::Values(Mesh{.tensor = 2}, Mesh{.tensor = 4},
                                         Mesh{.data = 2, .tensor = 2}),
                         [](const auto& mesh) {
                           return "Data" + std::to_string(mesh.param.data) + "Tensor" +
                                  std::to_string(mesh.param.tensor);
                         });

TEST(Tensor, GivesTheSameBitsEachTime) {
  const ComposeOptions options = options_for(kGpt, {.data = 2, .tensor = 2}, 2);
  expect_same_bits(train(options), train(options));
}

TEST(Tensor, GivesTheSameBitsWithRecomputation) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    const Trained kept = train(options_for(design, {.tensor = 2}, 2));
    for (const Recompute recompute : {Recompute::kOps, Recompute::kBlocks}) {
      ComposeOptions options = options_for(design, {.tensor = 2}, 2);
      options.recompute = recompute;
      expect_same_bits(kept, train(options));
    }
  }
}

TEST(Tensor, TrainsWithBf16) {
  ComposeOptions options = options_for(kGpt, {.tensor = 2}, 1);
  const Trained plain = train(options);
  options.precision = kernels::Precision::kBf16;
  const Trained rounded = train(options);
  for (size_t step = 0; step < plain.losses.size(); ++step) {
    EXPECT_NEAR(plain.losses[step], rounded.losses[step], 0.02);
  }
}

// States go from any mesh to any other.
TEST(Tensor, ContinuesTheStateOfOtherMeshes) {
  const ComposeOptions alone = options_for(kGpt, {}, 1);
  Trained first = train(alone);
  const Trained expected = train(alone, {.state = &first.state, .steps = kSteps});
  for (const Mesh& mesh : {Mesh{.tensor = 2}, Mesh{.data = 2, .tensor = 2}, Mesh{.tensor = 4}}) {
    SCOPED_TRACE(name_of(mesh));
    const ComposeOptions split = options_for(kGpt, mesh, 1);
    expect_close(kGpt, expected, train(split, {.state = &first.state, .steps = kSteps}));
    Trained begun = train(split);
    expect_close(kGpt, expected, train(alone, {.state = &begun.state, .steps = kSteps}));
  }
}

TEST(Tensor, KeepsTheStateThatItIsGiven) {
  Trained first = train(options_for(kLlama, {}, 1));
  for (const Mesh& mesh : {Mesh{.tensor = 4}, Mesh{.data = 2, .tensor = 2}}) {
    SCOPED_TRACE(name_of(mesh));
    const KeptState kept = saved_after_load(options_for(kLlama, mesh, 1), first.state);
    EXPECT_TRUE(first.state.tensors() == kept.tensors());
  }
}

// Rows of 4 texts of 256 tokens, which are summed in two chunks.
class LongTexts final : public BatchFeed {
 public:
  static constexpr int64_t kTexts = 4, kTokens = 256;
  Result<std::optional<DeviceBatch>> next() override {
    tokens_.clear();
    targets_.clear();
    for (int64_t i = 0; i < kTexts * kTokens; ++i) {
      const auto token = [&](int64_t place) {
        return static_cast<int32_t>((place * (place % 11 + batch_) + place / 7) % kVocabulary);
      };
      tokens_.push_back(token(i));
      targets_.push_back(token(i + 1));
    }
    ++batch_;
    return std::optional<DeviceBatch>({.rows = kTexts,
                                       .counted = kTexts * kTokens,
                                       .tensors = {tokens_.data(), targets_.data()}});
  }

 private:
  int64_t batch_ = 1;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
};

// Returns the loss and the norm of each step, on ranks that are each on a host of their own.
std::vector<double> train_on_hosts(ComposeOptions options) {
  options.micro_batch = LongTexts::kTexts;
  options.micro_batches = 2;
  options.sequence = LongTexts::kTokens;
  std::vector<int> hosts(static_cast<size_t>(options.mesh.size()));
  std::iota(hosts.begin(), hosts.end(), 0);
  auto world =
      comm::make_thread_world(static_cast<int>(hosts.size()), std::chrono::seconds(60), hosts)
          .value();
  std::vector<double> seen;
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) {
    ranks.emplace_back([&, rank = communicator.get()] {
      const SystemClock clock;
      auto model = Composition::create(options, *rank, clock);
      ASSERT_TRUE(model.ok()) << model.error().message;
      ASSERT_TRUE((*model)->initialise(7).ok());
      LongTexts feed;
      for (int64_t step = 1; step <= 3; ++step) {
        const auto report = (*model)->run_step(feed, {.step = step, .learning_rate = 0.01});
        ASSERT_TRUE(report.ok()) << report.error().message;
        if (rank->rank() != 0) continue;
        seen.push_back(report->numbers.loss.value());
        seen.push_back(report->numbers.gradient_norm.value());
      }
    });
  }
  ranks.clear();
  return seen;
}

TEST(Tensor, TrainsTheModelOfOneRankWithSumsThatTravelInChunks) {
  ModelConfig config = kGpt;
  config.width = 128;
  config.context = LongTexts::kTokens;
  ASSERT_EQ(model::sums_for(LongTexts::kTexts * LongTexts::kTokens * config.width * 4), 2);
  const std::vector<double> alone = train_on_hosts(options_for(config, {}, 2));
  ASSERT_EQ(alone.size(), 6u);
  for (const Mesh& mesh :
       {Mesh{.tensor = 2}, Mesh{.tensor = 4}, Mesh{.pipeline = 2, .tensor = 2}}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(name_of(mesh) + (sequence_parallel ? ", rows" : ""));
      ComposeOptions options = options_for(config, mesh, 2);
      options.sequence_parallel = sequence_parallel;
      if (mesh.pipeline > 1) options.pipeline = PipelineKind::kZeroBubble;
      const std::vector<double> split = train_on_hosts(options);
      ASSERT_EQ(split.size(), alone.size());
      for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], split[i], 1e-5);
      EXPECT_EQ(split, train_on_hosts(options));
    }
  }
}

TEST(Tensor, IsRefusedWithMemoryThatOnlyReplicasShare) {
  ComposeOptions options = options_for(kGpt, {.tensor = 2}, 1);
  options.exchange = Exchange::kHost;
  auto world = comm::make_thread_world(2).value();
  const SystemClock clock;
  const auto created = Composition::create(options, *world.front(), clock);
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().message,
            "[compose] the exchange host works only without tensor and pipeline parallelism");
}

}  // namespace
}  // namespace lockstep::parallel
