// A rank whose parameters are on servers, which a map plays.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/compose.h"

namespace lockstep::parallel {
namespace {

const SystemClock kClock;
constexpr int64_t kRows = 4;

const optim::OptimizerOptions kSgd{.kind = optim::OptimizerKind::kSgd, .weight_decay = 0};

class Servers final : public RemoteParameters {
 public:
  Status put(int64_t id, std::span<const float> values) override {
    values_[id].assign(values.begin(), values.end());
    return {};
  }
  void pull(int64_t id, int64_t clock, std::span<float> into) override {
    EXPECT_FALSE(pulls_.contains(id));
    EXPECT_EQ(clock, clock_);
    pulls_[id] = into;
  }
  Status finish_pull(int64_t id) override {
    if (!pulls_.contains(id)) return {};
    calls_ += "<" + std::to_string(id);
    std::ranges::copy(values_.at(id), pulls_.at(id).begin());
    pulls_.erase(id);
    return failure_;
  }
  void push(const Push& push) override {
    EXPECT_EQ(push.clock, clock_);
    calls_ += ">" + std::to_string(push.id);
    std::vector<float>& values = values_.at(push.id);
    ASSERT_EQ(push.gradient.size(), values.size());
    const kernels::UpdatedTensor tensor{
        .parameter = values.data(), .gradient = push.gradient.data(), .count = std::ssize(values)};
    optim::update_tensors(kernels::cpu_ops(), stream_, kSgd, {.learning_rate = push.learning_rate},
                          std::span(&tensor, 1));
    if (++pushes_ == std::ssize(values_)) {
      pushes_ = 0;
      ++clock_;
    }
  }
  Status finish_pushes() override {
    calls_ += ".";
    return {};
  }

  std::string take_calls() { return std::exchange(calls_, {}); }
  void fail() { failure_ = unavailable("the server is gone"); }

 private:
  std::map<int64_t, std::vector<float>> values_;
  std::map<int64_t, std::span<float>> pulls_;
  int64_t clock_ = 0;
  int64_t pushes_ = 0;
  std::string calls_;
  Status failure_;
  kernels::Stream stream_;
};

class Table final : public BatchFeed {
 public:
  Result<std::optional<DeviceBatch>> next() override {
    return std::optional<DeviceBatch>(
        {.rows = kRows, .counted = kRows, .tensors = {kFeatures, kLabels}});
  }

 private:
  static constexpr float kFeatures[kRows * 3] = {1, 2, 3, -1, 0, 2, 0.5f, -2, 1, 3, 1, -1};
  static constexpr int32_t kLabels[kRows] = {0, 1, 1, 0};
};

ComposeOptions options_of(RemoteParameters* remote) {
  ComposeOptions options{.design = MlpConfig{.inputs = 3, .hidden = {8, 5}, .outputs = 2},
                         .mesh = {},
                         .optimizer = kSgd};
  options.micro_batches = 2;
  options.micro_batch = kRows;
  options.samples = {kRows, kRows};
  options.step_samples = 2 * kRows;
  options.bucket_bytes = 128;
  options.remote = remote;
  if (remote != nullptr) options.exchange = Exchange::kServers;
  return options;
}

struct Trained {
  std::vector<double> losses;
  std::vector<float> parameters;
};

Trained trained(RemoteParameters* remote) {
  auto world = comm::make_thread_world(1).value();
  auto model = Composition::create(options_of(remote), *world.front(), kClock).value();
  EXPECT_TRUE(model->initialise(7).ok());
  Table feed;
  Trained trained;
  for (int64_t step = 1; step <= 5; ++step) {
    const StepReport report = model->run_step(feed, {.step = step, .learning_rate = 0.1}).value();
    trained.losses.push_back(*report.numbers.loss);
  }
  EXPECT_TRUE(model->settle().ok());
  const DeviceState state = model->state();
  trained.parameters.assign(state.parameters, state.parameters + state.arena->count);
  return trained;
}

TEST(ServedComposition, HasTheBitsOfARankWithItsOwnParameters) {
  Servers servers;
  const Trained served = trained(&servers);
  const Trained own = trained(nullptr);
  EXPECT_LT(own.losses.back(), own.losses.front());
  EXPECT_EQ(served.losses, own.losses);
  EXPECT_EQ(served.parameters, own.parameters);
}

TEST(ServedComposition, PushesDuringBackwardAndWaitsForABlockWhenItIsUsed) {
  Servers servers;
  auto world = comm::make_thread_world(1).value();
  auto model = Composition::create(options_of(&servers), *world.front(), kClock).value();
  ASSERT_TRUE(model->initialise(7).ok());
  EXPECT_EQ(servers.take_calls(), "<0<1<2<3<4<5") << "what was put";
  Table feed;
  ASSERT_TRUE(model->run_step(feed, {.step = 1, .learning_rate = 0.1}).ok());
  EXPECT_EQ(servers.take_calls(), ">5>4>3>2>1>0.") << "once, for both micro-batches";
  ASSERT_TRUE(model->run_step(feed, {.step = 2, .learning_rate = 0.1}).ok());
  EXPECT_EQ(servers.take_calls(), "<0<1<2<3<4<5>5>4>3>2>1>0.");
  ASSERT_TRUE(model->pull_parameters(2).ok());
  EXPECT_EQ(servers.take_calls(), "<0<1<2<3<4<5<0<1<2<3<4<5") << "what was coming, then anew";
  servers.fail();
  ASSERT_EQ(model->pull_parameters(2).error().message, "the server is gone");
}

TEST(ServedComposition, CountsTheSamplesWhoseGradientsCount) {
  Servers all, half;
  std::vector<float> parameters[2];
  for (const int i : {0, 1}) {
    Servers& servers = i == 0 ? all : half;
    auto world = comm::make_thread_world(1).value();
    ComposeOptions options = options_of(&servers);
    options.counted_samples = i == 0 ? 0 : kRows;
    auto model = Composition::create(options, *world.front(), kClock).value();
    ASSERT_TRUE(model->initialise(7).ok());
    const DeviceState state = model->state();
    const std::vector<float> before(state.parameters, state.parameters + state.arena->count);
    Table feed;
    ASSERT_TRUE(model->run_step(feed, {.step = 1, .learning_rate = 0.1}).ok());
    ASSERT_TRUE(model->settle().ok());
    for (size_t at = 0; at < before.size(); ++at) {
      parameters[i].push_back(state.parameters[at] - before[at]);
    }
  }
  for (size_t at = 0; at < parameters[0].size(); ++at) {
    EXPECT_NEAR(parameters[1][at], 2 * parameters[0][at], 1e-6) << at;
  }
}

TEST(ServedComposition, RefusesWhatServersDoNotServe) {
  Servers servers;
  auto world = comm::make_thread_world(1).value();
  ComposeOptions without = options_of(&servers);
  without.remote = nullptr;
  ComposeOptions in_bf16 = options_of(&servers);
  in_bf16.precision = kernels::Precision::kBf16;
  for (const ComposeOptions& options : {without, in_bf16}) {
    const auto model = Composition::create(options, *world.front(), kClock);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code, Code::kInvalid);
  }
}

}  // namespace
}  // namespace lockstep::parallel
