#include "agent/parallel/compose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "agent/comm/gpu/nccl_backend.h"
#include "agent/comm/gpu/staging_plan.h"
#include "agent/comm/make_communicator.h"
#include "agent/parallel/staging_memory.h"
#include "tests/agent/model/initialise_arena.h"
#include "tests/agent/parallel/kept_state.h"
#include "tests/kernels/arena_text.h"

namespace lockstep::parallel {
namespace {

const ModelConfig kConfig{1, 16, 1, 8, 32};
const SystemClock kClock;

ComposeOptions options_for(const Mesh& mesh,
                           kernels::Precision precision = kernels::Precision::kF32) {
  return {.design = kConfig,
          .mesh = mesh,
          .micro_batch = 2,
          .sequence = 8,
          .bucket_bytes = 4096,
          .optimizer = {},
          .precision = precision};
}

const ArenaEntry& parameter_of(const ParameterArena& arena, const std::string& name) {
  const std::vector<Parameter> table = parameter_table(kConfig);
  const auto found = std::ranges::find(table, name, &Parameter::name);
  return *arena.find(found->id);
}

TEST(Composition, RefusesMeshesThatItDoesNotCarryOut) {
  auto world = comm::make_thread_world(1);
  ASSERT_TRUE(world.ok());
  const auto wrong_size = Composition::create(options_for({.data = 2}), *world->front(), kClock);
  ASSERT_FALSE(wrong_size.ok());
  EXPECT_EQ(wrong_size.error().code, Code::kInvalid);

  auto two = comm::make_thread_world(2);
  ASSERT_TRUE(two.ok());
  ComposeOptions options = options_for({.pipeline = 2});
  const auto too_many = Composition::create(options, *two->front(), kClock);
  ASSERT_FALSE(too_many.ok());
  EXPECT_EQ(too_many.error().message,
            "[compose] expected at most as many stages as layers, 1, got 2");
  ModelConfig two_layers = kConfig;
  two_layers.layers = 2;
  options.design = two_layers;
  options.pipeline = PipelineKind::kInterleaved;
  const auto interleaved = Composition::create(options, *two->front(), kClock);
  ASSERT_FALSE(interleaved.ok());
  EXPECT_EQ(interleaved.error().message,
            "[schedule] interleaved with 2 stages, 1 micro-batches and 1 chunks: an interleaved "
            "schedule has several chunks");
}

TEST(Composition, BroadcastsTheStateOfTheFirstRank) {
  auto world = comm::make_thread_world(2);
  ASSERT_TRUE(world.ok());
  std::vector<std::jthread> ranks;
  for (auto& communicator : *world) {
    ranks.emplace_back([&communicator] {
      auto composition = Composition::create(options_for({.data = 2}, kernels::Precision::kBf16),
                                             *communicator, kClock);
      ASSERT_TRUE(composition.ok());
      Composition& model = **composition;
      EXPECT_EQ(model.place().data, communicator->rank());
      const DeviceState state = model.state();
      const ParameterArena& arena = *state.arena;
      if (communicator->rank() == 0) {
        ASSERT_TRUE(model.initialise(7).ok());
        state.optimizer[0].values[3] = 0.25f;
        state.optimizer[1].values[arena.entries.back().offset] = 0.5f;
      }
      ASSERT_TRUE(model.broadcast_state(1).ok());
      std::vector<float> expected(static_cast<size_t>(arena.count));
      model::initialise_arena(kConfig, arena, {}, 7, expected.data());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), state.parameters));
      EXPECT_EQ(state.optimizer[0].values[3], 0.25f);
      EXPECT_EQ(state.optimizer[1].values[arena.entries.back().offset], 0.5f);
      // The copies for products match the parameters that were received.
      const int64_t ones = parameter_of(arena, "transformer.h.0.ln_1.weight").offset;
      EXPECT_EQ(model.copies()[ones].bits, 0x3f80);
    });
  }
}

// Micro-batches of tokens that repeat; ends after `count` of them.
class RepeatedTokens final : public BatchFeed {
 public:
  explicit RepeatedTokens(int64_t count = 1'000'000) : left_(count) {
    for (size_t i = 0; i < kTokens; ++i) {
      tokens_[i] = static_cast<int32_t>(i % 7);
      targets_[i] = static_cast<int32_t>((i + 1) % 7);
    }
  }
  Result<std::optional<DeviceBatch>> next() override {
    if (left_-- == 0) return std::optional<DeviceBatch>();
    return std::optional<DeviceBatch>(
        {.rows = kRows, .counted = kTokens, .tensors = {tokens_.data(), targets_.data()}});
  }

 private:
  static constexpr int64_t kRows = 2;
  static constexpr size_t kTokens = 16;
  int64_t left_;
  std::array<int32_t, kTokens> tokens_{};
  std::array<int32_t, kTokens> targets_{};
};

bool nobody_stops() {
  return false;
}

// A composition in a world of one rank.
struct Alone {
  std::vector<std::unique_ptr<comm::Communicator>> world = comm::make_thread_world(1).value();
  std::unique_ptr<Composition> model;
  RepeatedTokens feed;

  explicit Alone(const ComposeOptions& options)
      : model(Composition::create(options, *world.front(), kClock).value()) {
    EXPECT_TRUE(model->initialise(7).ok());
  }
  StepReport step(const StepRequest& request) { return model->run_step(feed, request).value(); }
  std::vector<float> parameters() const {
    const DeviceState state = model->state();
    return {state.parameters, state.parameters + state.arena->count};
  }
};

// With a large epsilon AdamW's first update is in proportion to the gradient, so that its scale
// shows. The parameters have no weight decay.
ComposeOptions proportional() {
  ComposeOptions options = options_for({});
  options.optimizer.epsilon = 1e3;
  options.optimizer.weight_decay = 0;
  return options;
}

TEST(Composition, ScalesGradientsDownToTheLimitOfTheirNorm) {
  Alone free(proportional());
  Alone clipped(proportional());
  const std::vector<float> before = free.parameters();
  const double norm = *free.step({.learning_rate = 1e3}).numbers.gradient_norm;
  ASSERT_GT(norm, 0);
  const StepReport report = clipped.step({.learning_rate = 1e3, .clip_norm = norm / 4});
  EXPECT_EQ(*report.numbers.gradient_norm, norm) << "before clipping";
  const std::vector<float> whole = free.parameters();
  const std::vector<float> quarter = clipped.parameters();
  float largest = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    largest = std::max(largest, std::abs(whole[i] - before[i]));
    const float expected = (whole[i] - before[i]) / 4;
    EXPECT_NEAR(quarter[i] - before[i], expected, 1e-3 * std::abs(expected) + 1e-6) << i;
  }
  EXPECT_GT(largest, 1e-3f);
}

TEST(Composition, DoesNotScaleGradientsWithinTheLimit) {
  Alone free(options_for({}));
  Alone limited(options_for({}));
  const double norm = *free.step({.learning_rate = 0.1}).numbers.gradient_norm;
  (void)limited.step({.learning_rate = 0.1, .clip_norm = 2 * norm});
  EXPECT_EQ(free.parameters(), limited.parameters());
}

TEST(Composition, UpdatesNothingWhereTheNormIsNotFinite) {
  for (const float value : {NAN, INFINITY}) {
    for (const double clip_norm : {0.0, 1.0}) {
      Alone alone(options_for({}));
      const DeviceState state = alone.model->state();
      state.parameters[state.arena->entries.back().offset] = value;
      const auto bits = [&] {
        std::vector<uint32_t> words(static_cast<size_t>(state.arena->count));
        std::memcpy(words.data(), state.parameters, words.size() * sizeof(uint32_t));
        return words;
      };
      const std::vector<uint32_t> before = bits();
      const StepReport report = alone.step({.learning_rate = 0.1, .clip_norm = clip_norm});
      EXPECT_FALSE(std::isfinite(*report.numbers.gradient_norm));
      EXPECT_EQ(bits(), before);
    }
  }
}

// Gradients and losses of a step begin at zero, and all of its micro-batches count.
TEST(Composition, TakesTheMeanOverTheMicroBatchesOfAStep) {
  ComposeOptions options = options_for({});
  options.micro_batches = 3;
  Alone once(options_for({}));
  Alone thrice(options);
  RepeatedTokens some(5);
  const double loss = once.model->evaluate(some, nobody_stops).value().value().loss;
  for (const int64_t step : {1, 2}) {  // without an update both are the same
    const StepReport one = once.step({.step = step});
    const StepReport three = thrice.step({.step = step});
    EXPECT_NEAR(*one.numbers.loss, loss, 1e-6 * loss);
    EXPECT_NEAR(*three.numbers.loss, *one.numbers.loss, 1e-6 * loss);
    EXPECT_NEAR(*three.numbers.gradient_norm, *one.numbers.gradient_norm,
                1e-5 * *one.numbers.gradient_norm);
  }
}

TEST(Composition, FailsWhereTheDataOfAStepEnds) {
  ComposeOptions options = options_for({});
  options.micro_batches = 3;
  Alone alone(options);
  RepeatedTokens two(2);
  const Result<StepReport> report = alone.model->run_step(two, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Code::kInternal);
}

TEST(Composition, StopsAnEvaluationThatWasAskedToStop) {
  Alone alone(options_for({}));
  RepeatedTokens endless;
  int asked = 0;
  const auto third = [&] { return ++asked == 3; };
  EXPECT_FALSE(alone.model->evaluate(endless, third).value().has_value());
  EXPECT_EQ(asked, 3);
}

TEST(Composition, TellsEveryRankThatOneWasAskedToStop) {
  auto world = comm::make_thread_world(2).value();
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) {
    ranks.emplace_back([&communicator] {
      auto model = Composition::create(options_for({.data = 2}), *communicator, kClock).value();
      ASSERT_TRUE(model->initialise(7).ok());
      RepeatedTokens feed;
      EXPECT_FALSE(model->run_step(feed, {.step = 1}).value().stop);
      EXPECT_TRUE(
          model->run_step(feed, {.step = 2, .stop = communicator->rank() == 1}).value().stop);
      const auto stops = [&] { return communicator->rank() == 1; };
      RepeatedTokens few(2);
      EXPECT_FALSE(model->evaluate(few, stops).value().has_value());
    });
  }
}

StateShare share_of(Composition& model) {
  model.reserve_snapshot();
  EXPECT_TRUE(model.take_snapshot().ok());
  return model.snapshot();
}

// Three ranks have uneven shares. Two ranks with the same batch have the gradients of one exactly,
// three but for rounding, which the first steps of AdamW amplify.
class SavedShares : public testing::TestWithParam<int> {};

TEST_P(SavedShares, AreContinuedByAnotherWorld) {
  Alone alone(options_for({}));
  (void)alone.step({.step = 1, .learning_rate = 0.1});
  KeptState kept(kConfig);
  kept.add(share_of(*alone.model));
  EXPECT_TRUE(kept.is_whole());
  (void)alone.step({.step = 2, .learning_rate = 0.1});

  auto world = comm::make_thread_world(GetParam()).value();
  const double tolerance = GetParam() == 2 ? 0 : 1e-2;
  KeptState again(kConfig);
  std::mutex one_at_a_time;
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) {
    ranks.emplace_back([&] {
      auto model =
          Composition::create(options_for({.data = GetParam()}), *communicator, kClock).value();
      ASSERT_TRUE(model->read_share(kept).ok());
      ASSERT_TRUE(model->exchange_shares(1).ok());
      {
        const std::lock_guard lock(one_at_a_time);
        again.add(share_of(*model));
      }
      RepeatedTokens feed;
      ASSERT_TRUE(model->run_step(feed, {.step = 2, .learning_rate = 0.1}).ok());
      const DeviceState state = model->state();
      const std::vector<float> expected = alone.parameters();
      for (int64_t i = 0; i < state.arena->count; ++i) {
        ASSERT_NEAR(state.parameters[i], expected[static_cast<size_t>(i)], tolerance) << i;
      }
    });
  }
  ranks.clear();
  EXPECT_EQ(again.tensors(), kept.tensors());
}

INSTANTIATE_TEST_SUITE_P(Worlds, SavedShares, testing::Values(2, 3));

TEST(Composition, ClearsItsShareOfAStateThatTurnedOutCorrupt) {
  Alone alone(options_for({}));
  (void)alone.step({.step = 1, .learning_rate = 0.1});
  ASSERT_TRUE(alone.model->clear_share().ok());
  for (const auto& kind : share_of(*alone.model).kinds) {
    EXPECT_TRUE(std::all_of(kind.begin(), kind.end(), [](float value) { return value == 0; }));
  }
}

uint64_t bytes_of_part(const kernels::ArenaPlan& plan, DevicePart part) {
  return plan.parts[static_cast<size_t>(part)].bytes;
}

TEST(Composition, HasAllocatedWhatIsPlannedWithoutIt) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kOps, Recompute::kBlocks}) {
    for (const kernels::Precision precision :
         {kernels::Precision::kF32, kernels::Precision::kBf16}) {
      ComposeOptions options = options_for({}, precision);
      options.recompute = recompute;
      const MemoryPlan plan = plan_memory(options).value();
      const Alone alone(options);
      EXPECT_EQ(kernels::arena_text(alone.model->memory().device),
                kernels::arena_text(plan.device));
      EXPECT_EQ(kernels::arena_text(alone.model->memory().pinned),
                kernels::arena_text(plan.pinned));
    }
  }
}

// Each part as the layouts of parameters and activations give it.
TEST(MemoryPlan, HasTheBytesOfTheLayouts) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
    ComposeOptions options = options_for({}, kernels::Precision::kBf16);
    options.recompute = recompute;
    const kernels::ArenaPlan plan = plan_memory(options).value().device;
    const auto count = static_cast<uint64_t>(parameter_arena(kConfig, whole_model(kConfig)).count);
    EXPECT_EQ(bytes_of_part(plan, DevicePart::kParameters), 4 * count);
    EXPECT_EQ(bytes_of_part(plan, DevicePart::kCopies), 2 * count);
    EXPECT_EQ(bytes_of_part(plan, DevicePart::kGradients), 4 * count);
    EXPECT_EQ(kernels::bytes_of(plan, kernels::ArenaUse::kOptimizer), 8 * count);
    const ActivationShape shape{.batch = 2, .sequence = 8};
    const ActivationOptions how{.recompute = recompute};
    EXPECT_EQ(bytes_of_part(plan, DevicePart::kActivations),
              activation_arena(kConfig, whole_model(kConfig), {}, shape, how).bytes);
    EXPECT_EQ(bytes_of_part(plan, DevicePart::kScratch),
              backward_scratch(kConfig, whole_model(kConfig), {}, shape, how).bytes);
  }
}

TEST(MemoryPlan, OfARankOnTheCpuCopiesNeitherTokensNorState) {
  const MemoryPlan plan = plan_memory(options_for({})).value();
  EXPECT_EQ(bytes_of_part(plan.device, DevicePart::kBatches), 0u);
  EXPECT_EQ(bytes_of_part(plan.device, DevicePart::kCopies), 0u);
  EXPECT_LT(plan.pinned.bytes, 4096u);
  EXPECT_EQ(plan.device.reserve, 0u);
}

TEST(MemoryPlan, KeepsMemoryFreeForTheCollectivesOfSeveralGpus) {
  ComposeOptions options = options_for({});
  options.device = {kernels::DeviceType::kCuda, 0};
  const uint64_t alone = plan_memory(options).value().device.reserve;
  EXPECT_GT(alone, 0u);
  options.mesh.data = 2;
  const uint64_t together = plan_memory(options).value().device.reserve;
  EXPECT_GT(together, alone);
  EXPECT_EQ(plan_memory(options, {.collectives_bytes = 0}).value().device.reserve, alone);
}

TEST(MemoryPlan, CountsTheLogitsOfOneChunk) {
  ComposeOptions options = options_for({});
  std::get<ModelConfig>(options.design).vocabulary = 1 << 20;
  options.micro_batch = 1024;  // twice the logits that a chunk may have, and more
  const MemoryPlan plan = plan_memory(options).value();
  EXPECT_EQ(plan.logits_rows, kHeadLogitsMax >> 20);
  EXPECT_EQ(plan.logits_bytes, static_cast<uint64_t>(kHeadLogitsMax) * 4);
}

// Returns the bytes of the only part in that place.
uint64_t bytes_in(const std::vector<MemoryPart>& parts, MemoryPlace place) {
  const auto is_there = [place](const MemoryPart& part) { return part.place == place; };
  EXPECT_EQ(std::ranges::count_if(parts, is_there), 1);
  const auto found = std::ranges::find_if(parts, is_there);
  return found == parts.end() ? 0 : found->bytes;
}

TEST(CollectivesMemory, GrowsWithTheRanksAndHasBuffersForGradientsOfGpus) {
  EXPECT_TRUE(collectives_memory(options_for({}), 1).empty());
  ComposeOptions options = options_for({.data = 3});
  const std::vector<MemoryPart> on_cpus = collectives_memory(options, 3);
  ASSERT_EQ(on_cpus.size(), 2u);
  EXPECT_EQ(bytes_in(on_cpus, MemoryPlace::kShared), comm::shm_bytes(3));
  EXPECT_EQ(bytes_in(on_cpus, MemoryPlace::kHost), 2 * comm::buffered_bytes_max({}));
  options.device = {kernels::DeviceType::kCuda, 0};
  const std::vector<MemoryPart> on_gpus = collectives_memory(options, 1);
  ASSERT_EQ(on_gpus.size(), 2u);
  EXPECT_GE(bytes_in(on_gpus, MemoryPlace::kPinned),
            static_cast<uint64_t>(parameter_arena(kConfig, whole_model(kConfig)).count) * 4);
}

TEST(MemoryPlan, NamesTheBlocksThatItHasPlacesFor) {
  ComposeOptions options = options_for({.data = 2});
  options.sharding = {.sharding = Sharding::kParameters, .ranks = 2};
  const auto name = [&](DevicePart part) {
    return plan_memory(options).value().device.parts[static_cast<size_t>(part)].name;
  };
  EXPECT_EQ(name(DevicePart::kGathered), "parameters of two blocks");
  EXPECT_EQ(name(DevicePart::kUnitGradients), "gradients of two units and the embedding");
  options.sharding.reshard_after_forward = false;
  EXPECT_EQ(name(DevicePart::kGathered), "parameters of all blocks");
  std::get<ModelConfig>(options.design).tied = false;
  EXPECT_EQ(name(DevicePart::kUnitGradients), "gradients of two units");
}

TEST(MemoryPlan, KeepsMemoryFreeForEachGroupOfGpus) {
  ComposeOptions options = options_for({.data = 4});
  options.device = {kernels::DeviceType::kCuda, 0};
  const uint64_t without = plan_memory(options, {.collectives_bytes = 0}).value().device.reserve;
  const auto groups = [&] {
    return (plan_memory(options).value().device.reserve - without) / comm::kNcclMemoryBytes;
  };
  EXPECT_EQ(groups(), 1u);
  options.sharding = {.sharding = Sharding::kOptimizer, .ranks = 4};
  EXPECT_EQ(groups(), 2u);
  options.sharding.ranks = 2;
  EXPECT_EQ(groups(), 3u);
  options.sharding.ranks = 1;
  EXPECT_EQ(groups(), 1u) << "all ranks are replicas";
  auto& model = std::get<ModelConfig>(options.design);
  model = {.layers = 1, .width = 16, .heads = 4, .context = 8, .vocabulary = 29};
  model.family = Family::kLlama;
  model.kv_heads = 2;
  options.mesh = {.tensor = 2};
  EXPECT_EQ(groups(), 1u);
  options.mesh = {.tensor = 4};
  EXPECT_EQ(groups(), 2u) << "two ranks have the same head of keys and values";
}

constexpr uint64_t kSquares = 2 * std::bit_ceil(sizeof(kernels::SquareSum));

// Two units of 288 floats with padding. A rank's piece has 576 bytes, so it takes a block of 1024,
// and a unit one of 2048. A sum of squares takes two of 256.
TEST(StagingBytesMax, CountsBlocksOfEachSizeForWhatIsUnderWayTogether) {
  ComposeOptions options = options_for({.data = 2});
  options.design = MlpConfig{.inputs = 16, .hidden = {16}, .outputs = 16};
  options.bucket_bytes = 1;
  options.sharding = {.sharding = Sharding::kOptimizer, .ranks = 2};
  constexpr uint64_t two_units = 2 * 1024 + 4 * 2048, a_unit = 1024 + 2 * 2048;
  EXPECT_EQ(staging_bytes_max(options), kSquares + two_units + two_units);
  options.sharding.sharding = Sharding::kParameters;
  EXPECT_EQ(staging_bytes_max(options), kSquares + two_units + a_unit);
  options.sharding.reduces_bf16 = true;
  EXPECT_EQ(staging_bytes_max(options), kSquares + two_units / 2 + a_unit);
  options.sharding.gathers_bf16 = true;
  EXPECT_EQ(staging_bytes_max(options), kSquares + two_units / 2 + a_unit / 2);
  // Two replicas all-reduce a piece of each unit, or broadcast the shard of 1152 bytes.
  options.mesh.data = 4;
  options.sharding.reduces_bf16 = false;
  EXPECT_EQ(staging_bytes_max(options),
            kSquares + two_units + a_unit / 2 + 4 * uint64_t{1024} + 4 * uint64_t{2048});
}

// Large operations go in parts of 4 MiB, two at a time.
TEST(StagingBytesMax, OfLargeUnitsIsThatOfTheirParts) {
  ComposeOptions options = options_for({.data = 2});
  options.design = MlpConfig{.inputs = 2048, .hidden = {2048}, .outputs = 2048};
  options.bucket_bytes = 1 << 20;
  options.sharding = {.sharding = Sharding::kParameters, .ranks = 2};
  constexpr uint64_t whole = comm::kStagingBytes, half = whole / 2;
  EXPECT_EQ(staging_bytes_max(options), kSquares + (4 * half + 8 * whole) + (2 * half + 4 * whole));
  options.sharding = {};
  // Four blocks for each of two buckets; the broadcast of the parameters takes no more.
  EXPECT_EQ(staging_bytes_max(options), kSquares + 8 * whole);
}

TEST(Composition, SaysWhatItAsksForWhereThatIsTooMuch) {
  auto world = comm::make_thread_world(1);
  ASSERT_TRUE(world.ok());
  ComposeOptions options = options_for({});
  options.micro_batch = int64_t{1} << 40;
  const auto composition = Composition::create(options, *world->front(), kClock);
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
  const auto composition = Composition::create(options, *world->front(), kClock);
  ASSERT_FALSE(composition.ok());
}

}  // namespace
}  // namespace lockstep::parallel
