// The training loop of one rank on a device, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/train/data/token_windows.h"
#include "agent/train/train_step.h"
#include "agent/train/validator.h"
#include "common/base/random.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {

inline constexpr kernels::Device kCuda{kernels::DeviceType::kCuda, 0};
inline constexpr int64_t kContext = 8;
inline constexpr int64_t kMicro = 2;
inline constexpr int64_t kSteps = 4;
inline constexpr int64_t kFewSteps = 2;  // for bitwise comparisons: emulation is slow
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
  kernels::Device device;
  kernels::Precision precision = kernels::Precision::kF32;
  Recompute recompute = Recompute::kNone;
  ModelConfig config = kConfig;
  int64_t accumulation = 2;
  int64_t ranks = 1;
  uint64_t rounding_seed = 0;
  int64_t begin_step = 0;        // steps already done elsewhere
  const Clock* clock = nullptr;  // for the times of steps; null: the system's
};

// Returns text in which each token mostly determines the next.
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

// A rank with everything it needs to train, and its results. Every setup has the same data and the
// same initial state.
class Training {
 public:
  // A single rank.
  explicit Training(const TrainingSetup& setup) : Training(setup, nullptr) {}
  // One rank of a world, which must outlive it.
  Training(const TrainingSetup& setup, comm::Communicator& world) : Training(setup, &world) {}

  void train(int64_t steps = kSteps) {
    TrainStep step =
        TrainStep::create(
            {.schedule = {.kind = optim::ScheduleKind::kConstant, .peak = 1e-2, .steps = 100},
             .clip_norm = 1.0},
            {*model_, loader_})
            .value();
    for (int64_t i = 0; i < steps; ++i) {
      const Result<TrainStep::Outcome> outcome = step.run(++step_, false);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      losses.push_back(*outcome->numbers.loss);
      norms.push_back(*outcome->numbers.gradient_norm);
      seconds.push_back(outcome->numbers);
    }
  }
  double validate() {
    Validator validator =
        Validator::create({.rows = kMicro, .rank = world_.rank(), .ranks = world_.size()}, *model_,
                          windows_)
            .value();
    return validator.run().value().value().loss;
  }
  std::vector<int32_t> write_on(int64_t tokens = 6) {
    return model_->generate({.prompt = {1, 6, 31}, .tokens = tokens, .temperature = 0.0f})
        .value()
        .value();
  }
  // Returns the parameters and the optimizer's states.
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
    const auto count = static_cast<size_t>(model_->state().arena->count);
    const Status written = model_->transfer().write(state_runs(), [&](size_t run, int64_t first,
                                                                      std::span<float> to) {
      std::copy_n(values.data() + run * count + static_cast<size_t>(first), to.size(), to.data());
      return Status();
    });
    EXPECT_TRUE(written.ok());
  }
  // Returns the runs that state() consists of.
  std::vector<parallel::ValueRun> state_runs() {
    const parallel::DeviceState state = model_->state();
    const int64_t count = state.arena->count;
    std::vector<parallel::ValueRun> runs{{state.parameters, count}};
    for (const optim::OptimizerState& of : state.optimizer) runs.push_back({of.values, count});
    return runs;
  }
  // Returns the bits of the copies that products read.
  std::vector<uint16_t> copies() {
    std::vector<uint16_t> bits(static_cast<size_t>(model_->state().arena->count));
    EXPECT_TRUE(kernels::copy_bytes(model_->stream(), {.to = bits.data(),
                                                       .from = model_->copies(),
                                                       .bytes = bits.size() * sizeof(uint16_t)})
                    .ok());
    EXPECT_TRUE(model_->stream().synchronize().ok());
    return bits;
  }
  parallel::Composition& model() { return *model_; }
  const parallel::ComposeOptions& options() const { return options_; }

  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<StepNumbers> seconds;

 private:
  // Small enough that every model has several buckets.
  static constexpr int64_t kBucketBytes = 16 << 10;

  Training(const TrainingSetup& setup, comm::Communicator* world)
      : own_world_(world == nullptr ? std::move(comm::make_thread_world(1).value().front())
                                    : nullptr),
        world_(world == nullptr ? *own_world_ : *world),
        batch_{.micro = kMicro, .accumulation = setup.accumulation, .data_size = setup.ranks},
        source_(
            TokenSource::open({folder_.write("data", some_text()), TokenWidth::kByte, 64}).value()),
        split_(split_data(
                   {.tokens = source_.count(), .context = kContext, .validation_fraction = 0.02},
                   "data")
                   .value()),
        options_{.design = setup.config,
                 .mesh = {.data = setup.ranks},
                 .micro_batches = setup.accumulation,
                 .micro_batch = kMicro,
                 .sequence = kContext,
                 .bucket_bytes = kBucketBytes,
                 .optimizer = {.rounding_seed = setup.rounding_seed},
                 .precision = setup.precision,
                 .recompute = setup.recompute,
                 .device = setup.device},
        clock_(setup.clock == nullptr ? system_clock_ : *setup.clock),
        model_(parallel::Composition::create(options_, world_, clock_).value()),
        windows_(source_, split_),
        loader_(windows_, {.shape = batch_,
                           .data_rank = world_.rank(),
                           .seed = 3,
                           .position = setup.begin_step * batch_.global()}),
        step_(setup.begin_step) {
    // Only the first rank's values count.
    EXPECT_TRUE(model_->initialise(world_.rank() == 0 ? 1 : 99).ok());
    EXPECT_TRUE(model_->broadcast_state(0).ok());
  }

  const std::unique_ptr<comm::Communicator> own_world_;
  comm::Communicator& world_;
  const BatchShape batch_;
  TemporaryFolder folder_;
  TokenSource source_;
  DataSplit split_;
  const parallel::ComposeOptions options_;
  const SystemClock system_clock_;
  const Clock& clock_;
  std::unique_ptr<parallel::Composition> model_;
  TokenWindows windows_;
  BatchLoader loader_;
  int64_t step_;  // the last completed step
};

inline void expect_near(const std::vector<double>& ours, const std::vector<double>& theirs,
                        double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], theirs[i], tolerance * theirs[i]) << "step " << i + 1;
  }
}

}  // namespace lockstep::train
