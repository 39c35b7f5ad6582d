// Every way to share the state trains the same model.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kGpt{
    .layers = 3, .width = 16, .heads = 2, .context = kSequence, .vocabulary = kVocabulary};
constexpr ModelConfig kLlama{.layers = 2,
                             .width = 16,
                             .heads = 2,
                             .context = kSequence,
                             .vocabulary = kVocabulary,
                             .family = Family::kLlama,
                             .hidden = 24,
                             .tied = false,
                             .kv_heads = 1};

constexpr ModelConfig kBert = small_bert(2);

// The embedding and the head are larger than the blocks between them.
constexpr ModelConfig kWide{.layers = 2,
                            .width = 16,
                            .heads = 2,
                            .context = kSequence,
                            .vocabulary = 20 * kVocabulary,
                            .family = Family::kLlama,
                            .hidden = 24,
                            .tied = false,
                            .kv_heads = 1};

struct Way {
  std::string name;
  ShardingOptions sharding = {};
  Offload offload = Offload::kNone;
};

std::vector<Way> ways(int64_t ranks) {
  std::vector<Way> all{{"none", {}}, {"none offloaded", {}, Offload::kOptimizer}};
  for (int64_t group = ranks; group >= 1; group /= 2) {
    for (const Sharding sharding :
         {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
      const std::string name =
          std::string(sharding_name(sharding)) + " over " + std::to_string(group);
      all.push_back({name, {.sharding = sharding, .ranks = group}});
      all.push_back(
          {name + " offloaded",
           {.sharding = sharding, .ranks = group},
           sharding == Sharding::kParameters ? Offload::kParameters : Offload::kOptimizer});
    }
    all.push_back({"kept over " + std::to_string(group),
                   {.sharding = Sharding::kParameters,
                    .ranks = group,
                    .reshard_after_forward = false,
                    .prefetch = false}});
    if (group == 1) break;
  }
  return all;
}

ComposeOptions shared_options(const ModelDesign& design, int64_t ranks, int64_t micro_batches,
                              const Way& way) {
  ComposeOptions options = options_for(design, {.data = ranks}, micro_batches);
  options.sharding = way.sharding;
  options.offload.offload = way.offload;
  return options;
}

class Ways : public testing::TestWithParam<int64_t> {};

TEST_P(Ways, TrainTheSameModel) {
  const int64_t ranks = GetParam();
  for (const ModelDesign& design :
       {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert), ModelDesign(kTable)}) {
    for (const int64_t micro_batches : {1, 2}) {
      if (kSamples % (ranks * micro_batches) != 0) continue;
      const Trained alone = train(shared_options(design, 1, 1, {}));
      const Trained none = train(shared_options(design, ranks, micro_batches, {}));
      ASSERT_TRUE(none.state.is_whole());
      EXPECT_LT(distance(design, alone.state, none.state), 1e-5);
      for (const Way& way : ways(ranks)) {
        SCOPED_TRACE(way.name + ", " + std::to_string(micro_batches) + " micro-batches, " +
                     std::string(family_name(design)));
        const Trained run = train(shared_options(design, ranks, micro_batches, way));
        ASSERT_TRUE(run.state.is_whole());
        if (ranks <= 2 && micro_batches == 1) {
          expect_same_bits(none, run);
        } else {
          EXPECT_LT(distance(design, none.state, run.state), 1e-6);
          EXPECT_EQ(none.text, run.text);
          for (int step = 0; step < kSteps; ++step) {
            EXPECT_NEAR(run.losses[static_cast<size_t>(step)],
                        none.losses[static_cast<size_t>(step)], 1e-5);
          }
        }
      }
    }
  }
}

// The head's gradients of a micro-batch come after the embedding's of the one before.
TEST(Sharding, KeepsTheGradientsOfAMicroBatchFromTheNext) {
  const Trained none = train(shared_options(kWide, 2, 2, {}));
  for (const Sharding sharding : {Sharding::kGradients, Sharding::kParameters}) {
    SCOPED_TRACE(sharding_name(sharding));
    const Way way{"", {.sharding = sharding, .ranks = 2}};
    const Trained run = train(shared_options(kWide, 2, 2, way));
    ASSERT_TRUE(run.state.is_whole());
    EXPECT_LT(distance(kWide, none.state, run.state), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Ways, testing::Values(1, 2, 4, 8));

TEST(Sharding, RefusesWhatDoesNotGoTogether) {
  const auto refusal = [](const ComposeOptions& options) {
    const SystemClock clock;
    auto world = comm::make_thread_world(2).value();
    const auto created = Composition::create(options, *world.front(), clock);
    return created.ok() ? std::string() : created.error().message;
  };
  ComposeOptions options = shared_options(kGpt, 2, 1, {});
  options.sharding = {.sharding = Sharding::kOptimizer, .ranks = 3};
  EXPECT_EQ(refusal(options),
            "[compose] the 2 data-parallel ranks cannot be divided into groups of 3");
  options.sharding = {.ranks = 2};
  EXPECT_NE(refusal(options), "") << "groups that divide nothing";
  options.sharding = {.sharding = Sharding::kGradients, .ranks = 2, .gathers_bf16 = true};
  EXPECT_EQ(refusal(options), "[compose] parameters travel as bf16 only if they are sharded");
  options.sharding = {.sharding = Sharding::kGradients, .ranks = 2};
  options.exchange = Exchange::kFirstRank;
  EXPECT_EQ(refusal(options),
            "[compose] the exchange firstRank works only without sharding, offload and bf16 "
            "gradients");
  options.exchange = Exchange::kAllReduce;
  options.offload.offload = Offload::kParameters;
  EXPECT_EQ(refusal(options), "[compose] parameters are offloaded only if they are sharded");
}

TEST(Sharding, GivesTheSameBitsEachTime) {
  const Way way{"", {.sharding = Sharding::kParameters, .ranks = 2}};
  const ComposeOptions options = shared_options(kGpt, 4, 2, way);
  expect_same_bits(train(options), train(options));
}

// Two ranks have the same bits in every way, so the state of one is continued exactly by another.
TEST(Sharding, ContinuesTheStateOfEveryOtherWay) {
  Trained reference = train(shared_options(kGpt, 2, 1, {}));
  const Trained expected =
      train(shared_options(kGpt, 2, 1, {}), {.state = &reference.state, .steps = kSteps});
  for (const Way& way : ways(2)) {
    SCOPED_TRACE(way.name);
    Trained first = train(shared_options(kGpt, 2, 1, way));
    const Trained from_reference =
        train(shared_options(kGpt, 2, 1, way), {.state = &reference.state, .steps = kSteps});
    expect_same_bits(expected, from_reference);
    expect_same_bits(
        expected, train(shared_options(kGpt, 2, 1, {}), {.state = &first.state, .steps = kSteps}));
  }
}

// The parameters of a state that has been trained, without the optimizer's states.
TEST(Sharding, TrainsImportedParametersTheSameInEveryWay) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kTable)}) {
    Trained source = train(shared_options(design, 1, 1, {}));
    const TrainingStart imported{.imported = &source.state};
    const Trained expected = train(shared_options(design, 2, 1, {}), imported);
    EXPECT_LT(expected.losses.front(), source.losses.front());
    for (const Way& way : ways(2)) {
      SCOPED_TRACE(way.name + ", " + std::string(family_name(design)));
      expect_same_bits(expected, train(shared_options(design, 2, 1, way), imported));
    }
    const Trained alone = train(shared_options(design, 1, 1, {}), imported);
    EXPECT_LT(distance(design, alone.state, expected.state), 1e-5);
  }
}

TEST(Sharding, GivesTheSameBitsIfBlocksAreRecomputed) {
  for (const Way& way : ways(4)) {
    if (way.sharding.sharding != Sharding::kParameters) continue;
    SCOPED_TRACE(way.name);
    ComposeOptions options = shared_options(kGpt, 4, 2, way);
    const Trained kept = train(options);
    options.recompute = Recompute::kBlocks;
    expect_same_bits(kept, train(options));
  }
}

TEST(Sharding, TrainsWithBf16) {
  const Trained none = train(shared_options(kGpt, 2, 2, {}));
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    SCOPED_TRACE(sharding_name(sharding));
    Way way{"", {.sharding = sharding, .ranks = sharding == Sharding::kNone ? 1 : 2}};
    ComposeOptions options = shared_options(kGpt, 2, 1, way);
    options.precision = kernels::Precision::kBf16;
    ComposeOptions plain = shared_options(kGpt, 2, 1, {});
    plain.precision = kernels::Precision::kBf16;
    expect_same_bits(train(plain), train(options));
    way.sharding.reduces_bf16 = true;
    way.sharding.gathers_bf16 = sharding == Sharding::kParameters;
    const Trained rounded = train(shared_options(kGpt, 2, 2, way));
    EXPECT_NE(rounded.losses, none.losses);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(rounded.losses[static_cast<size_t>(step)], none.losses[static_cast<size_t>(step)],
                  0.02);
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
