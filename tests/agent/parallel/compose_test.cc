#include "agent/parallel/compose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "agent/comm/make_communicator.h"
#include "agent/model/init.h"
#include "common/layout/cost.h"

namespace lockstep::parallel {
namespace {

const ModelConfig kConfig{1, 16, 1, 8, 32};

ComposeOptions options_for(const Mesh& mesh,
                           kernels::Precision precision = kernels::Precision::kF32) {
  return {.config = kConfig,
          .mesh = mesh,
          .micro_batch = 2,
          .sequence = 8,
          .bucket_bytes = 4096,
          .optimizer = {},
          .precision = precision};
}

TEST(Composition, RefusesMeshesThatItDoesNotCarryOut) {
  auto world = comm::make_thread_world(1);
  ASSERT_TRUE(world.ok());
  const auto wrong_size = Composition::create(options_for({.data = 2}), *world->front());
  ASSERT_FALSE(wrong_size.ok());
  EXPECT_EQ(wrong_size.error().code, Code::kInvalid);

  auto two = comm::make_thread_world(2);
  ASSERT_TRUE(two.ok());
  for (const Mesh& mesh : {Mesh{.pipeline = 2}, Mesh{.tensor = 2}}) {
    const auto composition = Composition::create(options_for(mesh), *two->front());
    ASSERT_FALSE(composition.ok());
    EXPECT_NE(composition.error().message.find("not in this version"), std::string::npos);
  }
}

TEST(Composition, BroadcastsTheStateOfTheFirstRank) {
  auto world = comm::make_thread_world(2);
  ASSERT_TRUE(world.ok());
  std::vector<std::jthread> ranks;
  for (auto& communicator : *world) {
    ranks.emplace_back([&communicator] {
      auto composition =
          Composition::create(options_for({.data = 2}, kernels::Precision::kBf16), *communicator);
      ASSERT_TRUE(composition.ok());
      Composition& model = **composition;
      EXPECT_EQ(model.place().data, communicator->rank());
      const ParameterArena& arena = model.store().arena();
      const DeviceState state = model.state();
      if (communicator->rank() == 0) {
        ASSERT_TRUE(model.initialise(7).ok());
        state.first_moments[3] = 0.25f;
        state.second_moments[arena.entries.back().offset] = 0.5f;
      }
      ASSERT_TRUE(model.broadcast_state(1).ok());
      std::vector<float> expected(static_cast<size_t>(arena.count));
      model::initialise_arena(kConfig, arena, {}, 7, expected.data());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), model.store().parameters()));
      EXPECT_EQ(state.first_moments[3], 0.25f);
      EXPECT_EQ(state.second_moments[arena.entries.back().offset], 0.5f);
      // The copies for products match the parameters that were received.
      const auto views = model.store().get(1, model::kLatestVersion);
      ASSERT_TRUE(views.ok());
      const model::ParamView& norm = views->front();  // ln_1.weight: ones
      EXPECT_EQ(norm.product.bf16()[0].bits, 0x3f80);
      model.store().release(1, model::kLatestVersion);
    });
  }
}

// A composition in a world of one rank.
struct Alone {
  std::vector<std::unique_ptr<comm::Communicator>> world = comm::make_thread_world(1).value();
  std::unique_ptr<Composition> model;

  explicit Alone(const ComposeOptions& options)
      : model(Composition::create(options, *world.front()).value()) {
    model::initialise_arena(kConfig, model->store().arena(), {}, 7, model->store().parameters());
    model->begin_step();
  }
  std::vector<float> parameters() {
    const float* values = model->store().parameters();
    return {values, values + model->store().arena().count};
  }
};

TEST(Composition, TakesTheNormOfAllGradientsAndUpdatesThemClipped) {
  Alone alone(options_for({}));
  alone.model->sink().buffer(0)[0] = 3;
  alone.model->sink().buffer(1)[0] = 4;
  const std::vector<float> before = alone.parameters();
  alone.model->update({.learning_rate = 0.1, .clip_norm = 1.0, .step = 1});
  const StepValues values = alone.model->scalars().value();
  EXPECT_DOUBLE_EQ(values.norm(), 5);
  EXPECT_NEAR(values.scale, 0.2f, 1e-6f);
  EXPECT_EQ(values.loss_sum, 0);
  EXPECT_NE(alone.parameters(), before);
  alone.model->begin_step();
  EXPECT_EQ(alone.model->scalars().value().norm(), 0);
  EXPECT_EQ(alone.model->sink().buffer(0)[0], 0.0f);
}

TEST(Composition, UpdatesNothingWhereTheNormIsNotFinite) {
  for (const float gradient : {NAN, INFINITY}) {
    for (const double clip_norm : {0.0, 1.0}) {
      Alone alone(options_for({}));
      alone.model->sink().buffer(1)[0] = gradient;
      const std::vector<float> before = alone.parameters();
      alone.model->update({.learning_rate = 0.1, .clip_norm = clip_norm, .step = 1});
      const StepValues values = alone.model->scalars().value();
      EXPECT_FALSE(std::isfinite(values.norm()));
      EXPECT_TRUE(std::isnan(values.scale));
      EXPECT_EQ(alone.parameters(), before);
    }
  }
}

TEST(Composition, AddsTheLossesOfMicroBatches) {
  Alone alone(options_for({}));
  model::MicroBatch micro = alone.model->make_micro_batch(PassMode::kTrain).value();
  const std::vector<int32_t> tokens(16, 3);
  ASSERT_TRUE(
      alone.model->model().begin(micro, {.tokens = tokens.data(), .batch = 2, .sequence = 8}).ok());
  std::fill_n(micro.losses(), 16, 0.25f);
  alone.model->add_losses(micro);
  alone.model->add_losses(micro);
  EXPECT_EQ(alone.model->scalars().value().loss_sum, 8.0);
  alone.model->begin_losses();
  EXPECT_EQ(alone.model->scalars().value().loss_sum, 0.0);
}

// The plan is what common/layout counts, plus what operations need.
TEST(Composition, PlansItsMemoryToTheByte) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
    ComposeOptions options = options_for({}, kernels::Precision::kBf16);
    options.recompute = recompute;
    const Alone alone(options);
    const MemoryPlan expected = memory_plan(kConfig, {.stage = whole_model(kConfig),
                                                      .shard = {},
                                                      .shape = {.batch = 2, .sequence = 8},
                                                      .options = {.recompute = recompute},
                                                      .bf16_copy = true});
    const kernels::ArenaPlan& memory = alone.model->memory();
    EXPECT_EQ(kernels::bytes_of(memory, kernels::ArenaUse::kParameters),
              expected.weights + expected.weight_copies);
    EXPECT_EQ(kernels::bytes_of(memory, kernels::ArenaUse::kGradients), expected.gradients);
    EXPECT_EQ(kernels::bytes_of(memory, kernels::ArenaUse::kOptimizer), expected.optimizer);
    EXPECT_EQ(kernels::bytes_of(memory, kernels::ArenaUse::kActivations),
              expected.activations + expected.scratch);
    EXPECT_GT(kernels::bytes_of(memory, kernels::ArenaUse::kWorkspace), kStepScalarBytes);
  }
}

TEST(Composition, SaysWhatItAsksForWhereThatIsTooMuch) {
  auto world = comm::make_thread_world(1);
  ASSERT_TRUE(world.ok());
  ComposeOptions options = options_for({});
  options.micro_batch = int64_t{1} << 40;
  const auto composition = Composition::create(options, *world->front());
  ASSERT_FALSE(composition.ok());
  EXPECT_EQ(composition.error().code, Code::kInvalid);
  EXPECT_NE(composition.error().message.find("for of a micro-batch"), std::string::npos)
      << composition.error().message;
}

TEST(Composition, RefusesADeviceThatIsNotThere) {
  auto world = comm::make_thread_world(1);
  ASSERT_TRUE(world.ok());
  ComposeOptions options = options_for({});
  options.device = {kernels::DeviceType::kCuda, kernels::device_count(kernels::DeviceType::kCuda)};
  const auto composition = Composition::create(options, *world->front());
  ASSERT_FALSE(composition.ok());
}

}  // namespace
}  // namespace lockstep::parallel
