// The training loop of one rank on a device, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/model/generate.h"
#include "agent/train/train_step.h"
#include "agent/train/validator.h"
#include "common/base/random.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep {

inline constexpr Device kCuda{DeviceType::kCuda, 0};
inline constexpr int64_t kContext = 16;
inline constexpr int64_t kMicro = 2;
inline constexpr int64_t kSteps = 5;
inline constexpr int64_t kFewSteps = 2;  // where bits are compared: the device is played slowly
inline const ModelConfig kConfig{2, 32, 2, kContext, 64};
inline const ModelConfig kLlama{.layers = 2,
                                .width = 32,
                                .heads = 4,
                                .context = kContext,
                                .vocabulary = 64,
                                .family = Family::kLlama,
                                .hidden = 88,
                                .tied = false,
                                .kv_heads = 2};

struct TrainingSetup {
  Device device;
  Precision precision = Precision::kF32;
  Recompute recompute = Recompute::kNone;
  ModelConfig config = kConfig;
  uint64_t rounding_seed = 0;
  int64_t begin_step = 0;  // steps that others have done
};

// Tokens of which each follows from the one before, mostly.
inline std::string some_text() {
  Random random(5);
  std::string text;
  uint64_t token = 1;
  for (int i = 0; i < 4000; ++i) {
    token = random.below(4) == 0 ? random.below(64) : (token * 5 + 1) % 64;
    text += static_cast<char>(token);
  }
  return text;
}

// A rank alone with all that it trains with, and what came of it.
class Training {
 public:
  explicit Training(const TrainingSetup& setup)
      : source_(
            TokenSource::open({folder_.write("data", some_text()), TokenWidth::kByte, 64}).value()),
        split_(split_data(
                   {.tokens = source_.count(), .context = kContext, .validation_fraction = 0.02},
                   "data")
                   .value()),
        model_(Composition::create({.config = setup.config,
                                    .mesh = {},
                                    .micro_batch = kMicro,
                                    .sequence = kContext,
                                    .bucket_bytes = 1 << 20,
                                    .optimizer = {.rounding_seed = setup.rounding_seed},
                                    .precision = setup.precision,
                                    .recompute = setup.recompute,
                                    .device = setup.device},
                                   *world_.front())
                   .value()),
        loader_(source_, split_,
                {.shape = kBatch, .seed = 3, .position = setup.begin_step * kBatch.global()}),
        step_(setup.begin_step) {
    EXPECT_TRUE(model_->initialise(1).ok());
    EXPECT_TRUE(model_->broadcast_state(0).ok());
  }

  void train(int64_t steps = kSteps) {
    TrainStep step = TrainStep::create(
                         {.batch = kBatch,
                          .context = kContext,
                          .schedule = {.kind = ScheduleKind::kConstant, .peak = 1e-2, .steps = 100},
                          .clip_norm = 1.0},
                         {*model_, *world_.front(), loader_, reason_, clock_})
                         .value();
    for (int64_t i = 0; i < steps; ++i) {
      const Result<TrainStep::Outcome> outcome = step.run(++step_, false);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      losses.push_back(outcome->metrics.loss);
      norms.push_back(outcome->metrics.gradient_norm);
    }
  }
  double validate() {
    Validator validator =
        Validator::create(split_, kMicro, {*model_, *world_.front(), source_, reason_}).value();
    return validator.run().value().value();
  }
  std::vector<int32_t> write_on(int64_t tokens = 12) {
    return generate(model_->model(), model_->store(),
                    {.prompt = {1, 6, 31},
                     .tokens = tokens,
                     .temperature = 0.0f,
                     .memory = model_->micro_batch_memory()})
        .value();
  }
  // Parameters and both moments.
  std::vector<float> state() {
    std::vector<float> values;
    const Status read = model_->transfer().read(state_runs(), [&](std::span<const float> some) {
      values.insert(values.end(), some.begin(), some.end());
      return Status();
    });
    EXPECT_TRUE(read.ok());
    return values;
  }
  void set_state(const std::vector<float>& values) {
    const auto count = static_cast<size_t>(model_->store().arena().count);
    const Status written = model_->transfer().write(state_runs(), [&](size_t run, int64_t first,
                                                                      std::span<float> to) {
      std::copy_n(values.data() + run * count + static_cast<size_t>(first), to.size(), to.data());
      return Status();
    });
    EXPECT_TRUE(written.ok());
  }
  // Of which that is made.
  std::vector<ValueRun> state_runs() {
    const DeviceState state = model_->state();
    const int64_t count = model_->store().arena().count;
    return {{state.parameters, count}, {state.first_moments, count}, {state.second_moments, count}};
  }
  // Bits of the copies that products read.
  std::vector<uint16_t> copies() {
    std::vector<uint16_t> bits(static_cast<size_t>(model_->store().arena().count));
    EXPECT_TRUE(copy_bytes(model_->stream(), {.to = bits.data(),
                                              .from = model_->store().copies(),
                                              .bytes = bits.size() * sizeof(uint16_t)})
                    .ok());
    EXPECT_TRUE(model_->stream().synchronize().ok());
    return bits;
  }
  Composition& model() { return *model_; }

  std::vector<double> losses;
  std::vector<double> norms;

 private:
  static constexpr BatchShape kBatch{.micro = kMicro, .accumulation = 3, .data_size = 1};

  TemporaryFolder folder_;
  TokenSource source_;
  DataSplit split_;
  std::vector<std::unique_ptr<Communicator>> world_ = make_thread_world(1).value();
  std::unique_ptr<Composition> model_;
  BatchLoader loader_;
  int64_t step_;  // the last one that was done
  ExitReason reason_;
  SystemClock clock_;
};

}  // namespace lockstep
