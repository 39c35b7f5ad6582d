// Whole steps of an MLP, on one rank and on several.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/compose.h"
#include "tests/kernels/arena_text.h"

namespace lockstep::parallel {
namespace {

const SystemClock kClock;
constexpr int64_t kInputs = 3, kOutputs = 2, kRows = 4;

MlpConfig mlp(MlpTask task) {
  return {.inputs = kInputs, .hidden = {8, 5}, .outputs = kOutputs, .task = task};
}

// Samples that repeat every kRows, from `first` on, `rows` at a time; ends after `count` batches.
class Table final : public BatchFeed {
 public:
  Table(MlpTask task, int64_t first, int64_t rows, int64_t count = 1'000'000)
      : task_(task), next_(first), rows_(rows), left_(count) {}

  Result<std::optional<DeviceBatch>> next() override {
    if (left_-- == 0) return std::optional<DeviceBatch>();
    const int64_t at = next_ % kRows;
    next_ += rows_;
    const bool classifies = task_ == MlpTask::kClassification;
    const void* targets = classifies ? static_cast<const void*>(kLabels + at)
                                     : static_cast<const void*>(kValues + at * kOutputs);
    return std::optional<DeviceBatch>({.rows = rows_,
                                       .counted = classifies ? rows_ : rows_ * kOutputs,
                                       .tensors = {kFeatures + at * kInputs, targets}});
  }

 private:
  static constexpr float kFeatures[kRows * kInputs] = {1, 2, 3, -1, 0, 2, 0.5f, -2, 1, 3, 1, -1};
  static constexpr int32_t kLabels[kRows] = {0, 1, 1, 0};
  static constexpr float kValues[kRows * kOutputs] = {1, 0, 0, 2, -1, 0.5f, 3, 1};

  MlpTask task_;
  int64_t next_;
  int64_t rows_;
  int64_t left_;
};

bool nobody_stops() {
  return false;
}

struct Job {
  MlpTask task = MlpTask::kClassification;
  int64_t ranks = 1;
  int64_t micro_batches = 1;

  int64_t micro_batch() const { return kRows / ranks / micro_batches; }
  ComposeOptions options() const {
    ComposeOptions options{.design = mlp(task), .mesh = {.data = ranks}, .optimizer = {}};
    options.micro_batches = micro_batches;
    options.micro_batch = micro_batch();
    options.bucket_bytes = 128;  // several buckets
    return options;
  }
};

struct Trained {
  std::vector<double> losses;
  std::vector<float> parameters;
  Evaluation evaluation;
};

// Trains on the whole table in each step and evaluates on it.
Trained trained_rank(const Job& job, comm::Communicator& world) {
  auto model = Composition::create(job.options(), world, kClock).value();
  EXPECT_TRUE(model->initialise(7).ok());
  const int64_t share = kRows / job.ranks;
  Trained trained;
  for (int64_t step = 1; step <= 5; ++step) {
    Table feed(job.task, share * world.rank(), job.micro_batch());
    const StepReport report = model->run_step(feed, {.step = step, .learning_rate = 0.01}).value();
    trained.losses.push_back(*report.numbers.loss);
  }
  Table once(job.task, share * world.rank(), job.micro_batch(), job.micro_batches);
  trained.evaluation = model->evaluate(once, nobody_stops).value().value();
  const DeviceState state = model->state();
  trained.parameters.assign(state.parameters, state.parameters + state.arena->count);
  return trained;
}

std::vector<Trained> trained(const Job& job) {
  auto world = comm::make_thread_world(static_cast<int>(job.ranks)).value();
  std::vector<Trained> all(world.size());
  {
    std::vector<std::jthread> ranks;
    for (size_t i = 0; i < world.size(); ++i) {
      ranks.emplace_back([&, i] { all[i] = trained_rank(job, *world[i]); });
    }
  }
  return all;
}

TEST(MlpComposition, TrainsAloneAsOnTwoRanksAndInMicroBatches) {
  for (const MlpTask task : {MlpTask::kClassification, MlpTask::kRegression}) {
    const Trained alone = trained({.task = task}).front();
    EXPECT_LT(alone.losses.back(), alone.losses.front());
    for (const Job& job : {Job{task, 2, 1}, Job{task, 1, 2}, Job{task, 2, 2}}) {
      for (const Trained& rank : trained(job)) {
        EXPECT_EQ(rank.evaluation.accuracy.has_value(), task == MlpTask::kClassification);
        EXPECT_NEAR(rank.evaluation.loss, alone.evaluation.loss, 1e-5);
        EXPECT_EQ(rank.evaluation.accuracy, alone.evaluation.accuracy);
        for (size_t i = 0; i < alone.losses.size(); ++i) {
          EXPECT_NEAR(rank.losses[i], alone.losses[i], 1e-5) << i;
        }
        for (size_t i = 0; i < alone.parameters.size(); ++i) {
          ASSERT_NEAR(rank.parameters[i], alone.parameters[i], 1e-4) << i;
        }
      }
    }
  }
}

TEST(MlpComposition, TakesTheMeanOverSamplesOrTheirValues) {
  auto world = comm::make_thread_world(1).value();
  for (const MlpTask task : {MlpTask::kClassification, MlpTask::kRegression}) {
    auto model = Composition::create(Job{task}.options(), *world.front(), kClock).value();
    // All parameters are zero: both classes have probability 1/2, and all values are 0.
    Table once(task, 0, kRows, 1);
    const Evaluation evaluation = model->evaluate(once, nobody_stops).value().value();
    if (task == MlpTask::kClassification) {
      EXPECT_NEAR(evaluation.loss, std::log(2.0), 1e-6);
      EXPECT_EQ(evaluation.accuracy, 0.5) << "the first class, which two of four have";
    } else {
      EXPECT_NEAR(evaluation.loss, (1 + 4 + 1 + 0.25 + 9 + 1) / 8, 1e-6);
      EXPECT_EQ(evaluation.accuracy, std::nullopt);
    }
  }
}

TEST(MlpComposition, HasAllocatedWhatIsPlannedWithoutIt) {
  auto world = comm::make_thread_world(1).value();
  for (const MlpTask task : {MlpTask::kClassification, MlpTask::kRegression}) {
    const ComposeOptions options = Job{task}.options();
    const MemoryPlan plan = plan_memory(options).value();
    const auto model = Composition::create(options, *world.front(), kClock).value();
    EXPECT_EQ(kernels::arena_text(model->memory().device), kernels::arena_text(plan.device));
    EXPECT_EQ(plan.logits_rows, 0);
  }
}

TEST(MlpComposition, PlansTheTensorsOfItsBatchesOnAGpu) {
  ComposeOptions options = Job{MlpTask::kRegression}.options();
  options.device = {kernels::DeviceType::kCuda, 0};
  const kernels::ArenaPlan plan = plan_memory(options).value().device;
  const kernels::ArenaPart& slot = plan.parts[static_cast<size_t>(DevicePart::kBatches)];
  EXPECT_EQ(slot.name, "features and values");
  EXPECT_EQ(slot.bytes, static_cast<uint64_t>(kRows * (kInputs + kOutputs) * 4));
}

TEST(MlpComposition, HasNoTextToContinue) {
  auto world = comm::make_thread_world(1).value();
  const auto model = Composition::create(Job().options(), *world.front(), kClock).value();
  EXPECT_EQ(model->generate({.prompt = {1}, .tokens = 1}).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace lockstep::parallel
