// Pipelines whose stages have several chunks of the model each.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

// Six chunks have different numbers of layers.
constexpr ModelConfig kGpt = small_gpt(8);
constexpr ModelConfig kLlama = small_llama(8, 4);
constexpr ModelConfig kBert = small_bert(8);

ComposeOptions interleaved(const ModelDesign& design, const Mesh& mesh) {
  ComposeOptions options = options_for(design, mesh, 8 / mesh.data);
  options.pipeline = PipelineKind::kInterleaved;
  return options;
}

// The same with one chunk on each stage.
ComposeOptions plain(ComposeOptions options) {
  options.mesh.virtual_stages = 1;
  options.pipeline = PipelineKind::kOneForwardOneBackward;
  return options;
}

class Interleaved : public testing::TestWithParam<Mesh> {};

TEST_P(Interleaved, HasTheBitsOfOneForwardOneBackward) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    SCOPED_TRACE(family_name(design));
    const ComposeOptions options = interleaved(design, GetParam());
    const Trained trained = train(options);
    expect_same_bits(train(plain(options)), trained);
    expect_close(design, train(options_for(design, {}, 1)), trained);
  }
}

TEST_P(Interleaved, ShardsTheState) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    for (const Sharding sharding :
         {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
      for (const bool frees : {true, false}) {
        if (!frees && sharding != Sharding::kParameters) continue;
        SCOPED_TRACE(std::string(family_name(design)) + ", " +
                     std::string(sharding_name(sharding)));
        ComposeOptions options = interleaved(design, GetParam());
        options.sharding = {
            .sharding = sharding, .ranks = GetParam().data, .reshard_after_forward = frees};
        expect_same_bits(train(plain(options)), train(options));
      }
    }
  }
}

TEST_P(Interleaved, KeepsTheStateThatItIsGiven) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    Trained first = train(options_for(design, {}, 1));
    for (const Sharding sharding : {Sharding::kNone, Sharding::kParameters}) {
      ComposeOptions options = interleaved(design, GetParam());
      options.sharding.sharding = sharding;
      if (sharding != Sharding::kNone) options.sharding.ranks = GetParam().data;
      const KeptState kept = saved_after_load(options, first.state);
      EXPECT_TRUE(first.state.tensors() == kept.tensors());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pipeline, Interleaved,
    testing::Values(Mesh{.pipeline = 2, .virtual_stages = 2},
                    Mesh{.pipeline = 2, .virtual_stages = 3},
                    Mesh{.pipeline = 4, .virtual_stages = 2},
                    Mesh{.pipeline = 2, .data = 2, .virtual_stages = 2},
                    Mesh{.pipeline = 4, .data = 2, .virtual_stages = 2},
                    Mesh{.pipeline = 2, .data = 2, .tensor = 2, .virtual_stages = 3}),
    [](const auto& mesh) {
      return "Pipeline" + std::to_string(mesh.param.pipeline) + "Data" +
             std::to_string(mesh.param.data) + "Tensor" + std::to_string(mesh.param.tensor) +
             "Chunks" + std::to_string(mesh.param.virtual_stages);
    });

TEST(InterleavedPipeline, GivesTheSameBitsWithRecomputationAndEachTime) {
  ComposeOptions options = interleaved(kGpt, {.pipeline = 2, .data = 2, .virtual_stages = 2});
  const Trained first = train(options);
  expect_same_bits(first, train(options));
  options.recompute = Recompute::kBlocks;
  expect_same_bits(first, train(options));
}

TEST(InterleavedPipeline, SplitsTheRows) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    SCOPED_TRACE(family_name(design));
    ComposeOptions options =
        interleaved(design, {.pipeline = 2, .data = 2, .tensor = 2, .virtual_stages = 2});
    options.sequence_parallel = true;
    options.sharding = {.sharding = Sharding::kGradients, .ranks = 2};
    expect_same_bits(train(plain(options)), train(options));
  }
}

TEST(InterleavedPipeline, OffloadsTheState) {
  ComposeOptions options = interleaved(kGpt, {.pipeline = 2, .data = 2, .virtual_stages = 2});
  options.sharding = {.sharding = Sharding::kParameters, .ranks = 2};
  const Trained near = train(options);
  options.offload.offload = Offload::kParameters;
  expect_same_bits(near, train(options));
}

TEST(InterleavedPipeline, TrainsWithTheFirstRankOfEachStageAsServer) {
  ComposeOptions options = interleaved(kGpt, {.pipeline = 2, .data = 2, .virtual_stages = 2});
  options.exchange = Exchange::kFirstRank;
  expect_same_bits(train(plain(options)), train(options));
}

TEST(InterleavedPipeline, HasTheBitsOfOneForwardOneBackwardWithBf16) {
  ComposeOptions options = interleaved(kGpt, {.pipeline = 2, .data = 2, .virtual_stages = 2});
  options.precision = kernels::Precision::kBf16;
  expect_same_bits(train(plain(options)), train(options));
}

TEST(InterleavedPipeline, ContinuesTheStateOfAnotherMesh) {
  const ComposeOptions options = interleaved(kLlama, {.pipeline = 2, .virtual_stages = 3});
  Trained first = train(plain(options));
  const TrainingStart start{.state = &first.state, .steps = kSteps};
  const Trained expected = train(plain(options), start);
  const Trained continued = train(options, start);
  expect_same_bits(expected, continued);
}

TEST(InterleavedPipeline, IsContinuedByAnotherMesh) {
  const ComposeOptions options = interleaved(kLlama, {.pipeline = 2, .virtual_stages = 3});
  Trained first = train(options);
  const TrainingStart start{.state = &first.state, .steps = kSteps};
  const Trained expected = train(options, start);
  expect_same_bits(expected, train(options_for(kLlama, {}, 8), start));
}

TEST(InterleavedPipeline, RefusesWhatItCannotDivide) {
  auto world = comm::make_thread_world(2);
  ASSERT_TRUE(world.ok());
  const SystemClock clock;
  const auto refusal = [&](const ComposeOptions& options) {
    const auto composition = Composition::create(options, *world->front(), clock);
    if (composition.ok()) return std::string("none");
    EXPECT_EQ(composition.error().code, Code::kInvalid);
    return composition.error().message;
  };
  EXPECT_EQ(refusal(interleaved(kGpt, {.pipeline = 2, .virtual_stages = 5})),
            "[compose] expected at most as many stages as layers, 8, got 10");
  ComposeOptions options = interleaved(kGpt, {.pipeline = 2, .virtual_stages = 2});
  options.micro_batches = 3;
  EXPECT_EQ(refusal(options),
            "[schedule] interleaved with 2 stages, 3 micro-batches and 2 chunks: the micro-batches "
            "must be a multiple of the stages");
  options.pipeline = PipelineKind::kGpipe;
  EXPECT_EQ(refusal(options),
            "[schedule] gpipe with 2 stages, 3 micro-batches and 2 chunks: only an interleaved "
            "schedule has several chunks");
  EXPECT_EQ(refusal(interleaved(kGpt, {.data = 2, .virtual_stages = 2})),
            "[compose] expected a pipeline for 2 virtual stages, got one stage");
}

}  // namespace
}  // namespace lockstep::parallel
