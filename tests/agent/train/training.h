// The training loop of one rank on a device, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/data/open_data.h"
#include "agent/train/train_step.h"
#include "agent/train/validator.h"
#include "common/base/random.h"
#include "tests/agent/train/expect_near.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/support/npy_bytes.h"

namespace lockstep::train {

inline constexpr kernels::Device kCuda{kernels::DeviceType::kCuda, 0};
inline constexpr int64_t kContext = 8;
inline constexpr int64_t kMicro = 2;          // texts
inline constexpr int64_t kMicroOfTable = 16;  // rows
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
inline const ModelConfig kBert{.layers = 2,
                               .width = 32,
                               .heads = 4,
                               .context = kContext,
                               .vocabulary = 65,
                               .family = Family::kBert,
                               .hidden = 88,
                               .norm_epsilon = 1e-12};
inline const MlpConfig kClassifier{.inputs = 6, .hidden = {32, 16}, .outputs = 3};
inline const MlpConfig kRegressor{.inputs = 6,
                                  .hidden = {24},
                                  .outputs = 2,
                                  .activation = MlpActivation::kTanh,
                                  .task = MlpTask::kRegression};

struct TrainingSetup {
  kernels::Device device;
  kernels::Precision precision = kernels::Precision::kF32;
  Recompute recompute = Recompute::kNone;
  ModelDesign design = kConfig;
  int64_t accumulation = 2;
  int64_t ranks = 1;     // of all axes
  int64_t pipeline = 1;  // stages
  int64_t tensor = 1;
  PipelineKind schedule = PipelineKind::kOneForwardOneBackward;
  int64_t virtual_stages = 1;  // more than 1: an interleaved pipeline
  uint64_t rounding_seed = 0;
  int64_t begin_step = 0;        // steps already done elsewhere
  const Clock* clock = nullptr;  // for the times of steps; null: the system's
  ShardingOptions sharding = {};
  OffloadOptions offload = {};
  optim::OptimizerKind optimizer = optim::OptimizerKind::kAdamW;

  Mesh mesh() const {
    return {.pipeline = pipeline,
            .data = ranks / pipeline / tensor,
            .tensor = tensor,
            .virtual_stages = virtual_stages};
  }
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

// Returns the spec of a table for an MLP, in new files of the folder. The greatest of a sample's
// first columns says its class, and its values are a constant plus a tenth of their column.
inline DataSpec some_table(const TemporaryFolder& folder, const MlpConfig& model) {
  Random random(6);
  std::vector<float> features, values;
  std::vector<int32_t> classes;
  for (int64_t i = 0; i < 100; ++i) {
    std::vector<float> row;
    for (int64_t j = 0; j < model.inputs; ++j) {
      row.push_back(static_cast<float>(random.below(601)) / 100 - 3);
    }
    features.insert(features.end(), row.begin(), row.end());
    const auto first = std::span(row).first(static_cast<size_t>(model.outputs));
    classes.push_back(static_cast<int32_t>(std::ranges::max_element(first) - first.begin()));
    for (const float value : first) values.push_back(2 + value / 10);
  }
  const auto rows_of = [](int64_t columns) { return "(100, " + std::to_string(columns) + ")"; };
  const std::string targets = model.task == MlpTask::kClassification
                                  ? npy_array("<i4", "(100,)", classes)
                                  : npy_array("<f4", rows_of(model.outputs), values);
  return {.features = folder.write("features", npy_array("<f4", rows_of(model.inputs), features)),
          .targets = folder.write("targets", targets),
          .validationFraction = 0.1};
}

// A rank with everything it needs to train, and its results. Every setup has the same data and the
// same initial state.
class Training {
 public:
  // A single rank.
  explicit Training(const TrainingSetup& setup) : Training(setup, nullptr) {}
  // One rank of a world, which must outlive it.
  Training(const TrainingSetup& setup, comm::Communicator& world) : Training(setup, &world) {}

  // If steps overlap, the pipeline is empty after the last one, and gradients are not clipped.
  // Later stages know the results of all steps but the last few.
  void train(int64_t steps = kSteps) {
    const int64_t last = step_ + steps;
    TrainStep step =
        TrainStep::create(
            {.schedule = {.kind = optim::ScheduleKind::kConstant, .peak = 1e-2, .steps = 100},
             .clip_norm = parallel::steps_overlap(options_) ? 0 : 1.0},
            {*model_, loader_})
            .value();
    for (int64_t i = 0; i < steps; ++i) {
      const Result<TrainStep::Outcome> outcome = step.run({.step = ++step_, .flush = last});
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      losses.push_back(outcome->numbers.loss.value_or(0));
      norms.push_back(outcome->numbers.gradient_norm.value_or(0));
      seconds.push_back(outcome->numbers);
    }
  }
  double validate() {
    Validator validator =
        Validator::create(
            {.rows = batch_.micro, .rank = model_->place().data, .ranks = options_.mesh.data},
            *model_, *data_.samples)
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
        batch_{.micro = transformer_of(setup.design) != nullptr ? kMicro : kMicroOfTable,
               .accumulation = setup.accumulation,
               .data_size = setup.mesh().data},
        data_(open_data(data_of(setup.design), setup.design).value()),
        options_{.design = setup.design,
                 .mesh = setup.mesh(),
                 .pipeline = setup.virtual_stages > 1 ? PipelineKind::kInterleaved : setup.schedule,
                 .micro_batches = setup.accumulation,
                 .micro_batch = batch_.micro,
                 .sequence = transformer_of(setup.design) != nullptr ? kContext : 1,
                 .bucket_bytes = kBucketBytes,
                 .optimizer = {.kind = setup.optimizer,
                               .rounding_seed = setup.rounding_seed,
                               .muon = {.rate = 2, .precision = setup.precision}},
                 .precision = setup.precision,
                 .recompute = setup.recompute,
                 .sharding = setup.sharding,
                 .offload = setup.offload,
                 .device = setup.device},
        clock_(setup.clock == nullptr ? system_clock_ : *setup.clock),
        model_(parallel::Composition::create(options_, world_, clock_).value()),
        loader_(*data_.samples, {.shape = batch_,
                                 .data_rank = model_->place().data,
                                 .seed = 3,
                                 .position = setup.begin_step * batch_.global()}),
        step_(setup.begin_step) {
    // Only the first replicas' values count.
    EXPECT_TRUE(model_->initialise(model_->place().data < setup.sharding.ranks ? 1 : 99).ok());
    EXPECT_TRUE(model_->broadcast_state(0).ok());
  }

  DataSpec data_of(const ModelDesign& design) const {
    if (const MlpConfig* mlp = std::get_if<MlpConfig>(&design)) return some_table(folder_, *mlp);
    return {.path = folder_.write("data", some_text()), .validationFraction = 0.02};
  }

  const std::unique_ptr<comm::Communicator> own_world_;
  comm::Communicator& world_;
  const BatchShape batch_;
  TemporaryFolder folder_;
  const OpenedData data_;
  const parallel::ComposeOptions options_;
  const SystemClock system_clock_;
  const Clock& clock_;
  std::unique_ptr<parallel::Composition> model_;
  BatchLoader loader_;
  int64_t step_;  // the last completed step
};

}  // namespace lockstep::train
