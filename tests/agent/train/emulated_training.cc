#include "tests/agent/train/emulated_training.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "agent/comm/gpu/device_communicator.h"
#include "agent/comm/make_communicator.h"
#include "agent/model/generate.h"
#include "agent/model/init.h"
#include "common/base/random.h"
#include "tests/agent/comm/gpu/fake_nccl.h"
#include "tests/support/emulated_cuda/emulated_device.h"

namespace lockstep {

namespace {

// Tokens of which each follows from the one before, mostly.
std::string some_text() {
  Random random(5);
  std::string text;
  uint64_t token = 1;
  for (int i = 0; i < 4000; ++i) {
    token = random.below(4) == 0 ? random.below(64) : (token * 5 + 1) % 64;
    text += static_cast<char>(token);
  }
  return text;
}

// Of which every gradient bucket is reduced by itself.
constexpr int64_t kBucketBytes = 16 << 10;

std::shared_ptr<NcclApi> nccl_on_emulated_streams() {
  return std::make_shared<test::FakeNccl>([](void* stream, std::function<void()> kernel) {
    EXPECT_TRUE(emulated_cuda::issue_beside(stream, std::move(kernel)).ok());
  });
}

}  // namespace

std::unique_ptr<Communicator> lone_world() {
  return std::move(make_thread_world(1).value().front());
}

Training::Training(const TrainingSetup& setup, Communicator& world)
    : world_(world),
      batch_{
          .micro = kTinyMicroBatch, .accumulation = setup.accumulation, .data_size = setup.ranks},
      source_(
          TokenSource::open({folder_.write("data", some_text()), TokenWidth::kByte, 64}).value()),
      split_(split_data(
                 {.tokens = source_.count(), .context = kTinyContext, .validation_fraction = 0.02},
                 "data")
                 .value()),
      model_(Composition::create({.config = setup.config,
                                  .mesh = {.data = setup.ranks},
                                  .micro_batch = kTinyMicroBatch,
                                  .sequence = kTinyContext,
                                  .bucket_bytes = kBucketBytes,
                                  .optimizer = {},
                                  .precision = setup.precision,
                                  .recompute = setup.recompute,
                                  .device = setup.device},
                                 world)
                 .value()),
      loader_(source_, split_, {.shape = batch_, .data_rank = world.rank(), .seed = 3}) {
  HostState state = model_->state_on_host().value();
  // What the first rank has counts.
  const uint64_t seed = world.rank() == 0 ? 1 : 99;
  initialise_arena(setup.config, model_->store().arena(), {}, seed, state.parameters);
  EXPECT_TRUE(model_->take_state(state).ok());
  EXPECT_TRUE(model_->broadcast_state(false).ok());
}

void Training::train(int64_t steps) {
  TrainStep step =
      TrainStep::create({.batch = batch_,
                         .context = kTinyContext,
                         .schedule = {.kind = ScheduleKind::kConstant, .peak = 1e-2, .steps = 100},
                         .clip_norm = 1.0},
                        {*model_, world_, loader_, reason_, clock_})
          .value();
  for (int64_t i = 1; i <= steps; ++i) {
    const Result<TrainStep::Outcome> outcome = step.run(i, false);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    losses.push_back(outcome->metrics.loss);
    norms.push_back(outcome->metrics.gradient_norm);
    seconds.push_back(outcome->metrics.seconds);
  }
}

double Training::validate() {
  Validator validator =
      Validator::create(split_, kTinyMicroBatch, {*model_, world_, source_, reason_}).value();
  return validator.run().value().value();
}

std::vector<int32_t> Training::write_on() {
  return generate(model_->model(), model_->store(),
                  {.prompt = {1, 6, 31}, .tokens = 6, .temperature = 0.0f})
      .value();
}

std::vector<float> Training::state() {
  const HostState state = model_->state_on_host().value();
  const int64_t count = model_->store().arena().count;
  std::vector<float> values;
  for (const float* part : {state.parameters, state.first_moments, state.second_moments}) {
    values.insert(values.end(), part, part + count);
  }
  return values;
}

void on_emulated_ranks(int64_t ranks, GradientPath path,
                       const std::function<void(Communicator&, Device)>& body) {
  auto worlds = make_thread_world(static_cast<int>(ranks)).value();
  const auto nccl = path == GradientPath::kNccl ? nccl_on_emulated_streams() : nullptr;
  if (path != GradientPath::kCpu) emulated_cuda::set_device_count(static_cast<int>(ranks));
  std::vector<std::jthread> threads;
  for (std::unique_ptr<Communicator>& host : worlds) {
    threads.emplace_back([&body, &nccl, path, host = std::move(host)]() mutable {
      if (path == GradientPath::kCpu) return body(*host, {});
      const Device device{DeviceType::kCuda, host->rank()};
      const std::unique_ptr<Communicator> world =
          make_device_communicator(
              std::move(host), {.device = device},
              {.device = make_comm_device(device), .nccl = nccl, .why = "for a test"})
              .value();
      body(*world, device);
    });
  }
}

std::vector<Trained> train_ranks(const TrainingSetup& setup, GradientPath path, int64_t steps) {
  std::vector<Trained> trained(static_cast<size_t>(setup.ranks));
  on_emulated_ranks(setup.ranks, path, [&](Communicator& world, Device device) {
    TrainingSetup own = setup;
    own.device = device;
    Training training(own, world);
    training.train(steps);
    trained[static_cast<size_t>(world.rank())] = {training.losses, training.norms,
                                                  training.state()};
  });
  return trained;
}

void expect_near(const std::vector<double>& ours, const std::vector<double>& theirs,
                 double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], theirs[i], tolerance * theirs[i]) << "step " << i + 1;
  }
}

}  // namespace lockstep
