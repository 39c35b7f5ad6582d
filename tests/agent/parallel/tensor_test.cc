// Ranks that share the tensors of every layer train the model of one rank.
#include <gtest/gtest.h>

#include <string>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kGpt{
    .layers = 2, .width = 16, .heads = 4, .context = kSequence, .vocabulary = kVocabulary};
constexpr ModelConfig kLlama{.layers = 2,
                             .width = 16,
                             .heads = 4,
                             .context = kSequence,
                             .vocabulary = kVocabulary,
                             .family = Family::kLlama,
                             .hidden = 24,
                             .tied = false,
                             .kv_heads = 4};

std::string name_of(const Mesh& mesh) {
  return "data " + std::to_string(mesh.data) + ", tensor " + std::to_string(mesh.tensor);
}

class Meshes : public testing::TestWithParam<Mesh> {};

TEST_P(Meshes, TrainTheModelOfOneRank) {
  const Mesh mesh = GetParam();
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama)}) {
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
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama)}) {
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
