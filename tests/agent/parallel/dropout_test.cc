// Ranks drop what one rank drops, however they share the work.
#include <gtest/gtest.h>

#include <string>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kGpt = small_gpt(2);
constexpr ModelConfig kLlama = small_llama(2, 4);
constexpr ModelConfig kBert = small_bert(2);

ComposeOptions dropping(const ModelDesign& design, const Mesh& mesh, int64_t micro_batches) {
  ComposeOptions options = options_for(design, mesh, micro_batches);
  options.dropout = {.probability = 0.2, .seed = 5};
  return options;
}

TEST(Dropout, IsTheSameOnEveryMesh) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    const Trained alone = train(dropping(design, {}, 1));
    // The ranks of these tests have the samples of a step in this order only so.
    for (const auto& [mesh, micro_batches] : {std::pair{Mesh{}, 4},
                                              {Mesh{.data = 2}, 1},
                                              {Mesh{.tensor = 2}, 2},
                                              {Mesh{.data = 2, .tensor = 2}, 1},
                                              {Mesh{.pipeline = 2}, 4}}) {
      SCOPED_TRACE(std::string(family_name(design)) + ", data " + std::to_string(mesh.data) +
                   ", tensor " + std::to_string(mesh.tensor) + ", pipeline " +
                   std::to_string(mesh.pipeline));
      expect_close(design, alone, train(dropping(design, mesh, micro_batches)));
    }
  }
}

TEST(Dropout, IsTheSameWithShardedRowsAndParameters) {
  const Trained alone = train(dropping(kGpt, {}, 1));
  ComposeOptions rows = dropping(kGpt, {.tensor = 2}, 2);
  rows.sequence_parallel = true;
  expect_close(kGpt, alone, train(rows));
  ComposeOptions parameters = dropping(kGpt, {.data = 2}, 1);
  parameters.sharding = {.sharding = Sharding::kParameters, .ranks = 2};
  expect_close(kGpt, alone, train(parameters));
}

TEST(Dropout, IsTheSameWhereBackwardIsSplitOrRecomputes) {
  const Trained alone = train(dropping(kGpt, {}, 4));
  for (const Recompute recompute : {Recompute::kOps, Recompute::kBlocks}) {
    ComposeOptions options = dropping(kGpt, {}, 4);
    options.recompute = recompute;
    expect_same_bits(alone, train(options));
  }
  for (const PipelineKind kind : {PipelineKind::kZeroBubble, PipelineKind::kGpipe}) {
    ComposeOptions options = dropping(kGpt, {.pipeline = 2}, 4);
    options.pipeline = kind;
    expect_close(kGpt, alone, train(options));
  }
}

TEST(Dropout, DropsOtherValuesWithAnotherSeed) {
  const Trained run = train(dropping(kGpt, {}, 1));
  const Trained plain = train(options_for(kGpt, {}, 1));
  ComposeOptions options = dropping(kGpt, {}, 1);
  options.dropout.seed = 6;
  const Trained other = train(options);
  EXPECT_NE(run.losses.front(), other.losses.front());
  EXPECT_NE(run.losses.front(), plain.losses.front());
}

TEST(Dropout, OfAnMlpIsTheSameOnSeveralRanks) {
  const Trained alone = train(dropping(kTable, {}, 1));
  expect_close(kTable, alone, train(dropping(kTable, {}, 4)));
  expect_close(kTable, alone, train(dropping(kTable, {.data = 2}, 1)));
  EXPECT_NE(alone.losses, train(options_for(kTable, {}, 1)).losses);
}

}  // namespace
}  // namespace lockstep::parallel
