// Every way to share the state trains the same model.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/compose.h"
#include "tests/agent/parallel/kept_state.h"

namespace lockstep::parallel {
namespace {

const SystemClock kClock;
constexpr ModelConfig kGpt{.layers = 3, .width = 16, .heads = 2, .context = 8, .vocabulary = 29};
constexpr ModelConfig kLlama{.layers = 2,
                             .width = 16,
                             .heads = 2,
                             .context = 8,
                             .vocabulary = 29,
                             .family = Family::kLlama,
                             .hidden = 24,
                             .tied = false,
                             .kv_heads = 1};
constexpr int64_t kSamples = 8;  // of a step, over all ranks and micro-batches
constexpr int kSteps = 6;

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

ComposeOptions options_for(const ModelDesign& design, int64_t ranks, int64_t micro_batches,
                           const Way& way) {
  ComposeOptions options{.design = design,
                         .mesh = {.data = ranks},
                         .micro_batches = micro_batches,
                         .micro_batch = kSamples / ranks / micro_batches,
                         .sequence = 8,
                         .bucket_bytes = 4096,
                         .optimizer = {.epsilon = 1e-5}};
  options.sharding = way.sharding;
  options.offload.offload = way.offload;
  return options;
}

// The samples of a step, of which each rank takes its part.
class Texts final : public BatchFeed {
 public:
  Texts(int64_t first_sample, int64_t samples, int64_t batch, int64_t stride = kSamples)
      : first_(first_sample), samples_(samples), batch_(batch), stride_(stride) {}

  Result<std::optional<DeviceBatch>> next() override {
    tokens_.clear();
    targets_.clear();
    for (int64_t i = 0; i < batch_; ++i) {
      const int64_t sample = step_ * stride_ + first_ + taken_++;
      for (int64_t token = 0; token < 8; ++token) {
        tokens_.push_back(static_cast<int32_t>((sample * 7 + token * (sample % 5 + 1)) % 29));
        targets_.push_back(
            static_cast<int32_t>((sample * 7 + (token + 1) * (sample % 5 + 1)) % 29));
      }
    }
    if (taken_ == samples_) {
      taken_ = 0;
      ++step_;
    }
    return std::optional<DeviceBatch>(
        {.rows = batch_, .counted = batch_ * 8, .tensors = {tokens_.data(), targets_.data()}});
  }

 private:
  int64_t first_;
  int64_t samples_;
  int64_t batch_;
  int64_t stride_;
  int64_t step_ = 0;
  int64_t taken_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  double evaluation = 0;
  std::vector<int32_t> text;
  KeptState state;
};

// Trains, from the state if there is one; evaluates uneven numbers of batches, and samples.
Trained train(const ComposeOptions& options, KeptState* from = nullptr, int first_step = 1) {
  Trained run{.losses = {}, .norms = {}, .text = {}, .state = KeptState(options.design)};
  auto world = comm::make_thread_world(static_cast<int>(options.mesh.data)).value();
  std::mutex one_at_a_time;
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) {
    ranks.emplace_back([&, world = communicator.get()] {
      auto created = Composition::create(options, *world, kClock);
      ASSERT_TRUE(created.ok()) << created.error().message;
      Composition& model = **created;
      if (from == nullptr) {
        ASSERT_TRUE(model.initialise(7).ok());
      } else {
        std::unique_lock lock(one_at_a_time);
        ASSERT_TRUE(model.read_share(*from).ok());
        lock.unlock();
        ASSERT_TRUE(model.exchange_shares(first_step - 1).ok());
      }
      const bool is_root = world->rank() == 0;
      const int64_t samples = kSamples / options.mesh.data;
      Texts feed(world->rank() * samples, samples, options.micro_batch);
      for (int step = first_step; step < first_step + kSteps; ++step) {
        const auto report =
            model.run_step(feed, {.step = step, .learning_rate = 0.01, .clip_norm = 0.5});
        ASSERT_TRUE(report.ok()) << report.error().message;
        if (!is_root) continue;
        run.losses.push_back(report->numbers.loss.value());
        run.norms.push_back(report->numbers.gradient_norm.value());
      }
      class Few final : public BatchFeed {
       public:
        Few(Texts& texts, int64_t count) : texts_(texts), left_(count) {}
        Result<std::optional<DeviceBatch>> next() override {
          if (left_-- <= 0) return std::optional<DeviceBatch>();
          return texts_.next();
        }

       private:
        Texts& texts_;
        int64_t left_;
      } few(feed, 1 + world->rank() % 2);
      const auto evaluation = model.evaluate(few, [] { return false; });
      ASSERT_TRUE(evaluation.ok() && evaluation->has_value());
      const auto text = model.generate({.prompt = {1, 2, 3}, .tokens = 5, .temperature = 0});
      ASSERT_TRUE(text.ok()) << text.error().message;
      EXPECT_EQ(text->has_value(), is_root);
      model.reserve_snapshot();
      ASSERT_TRUE(model.take_snapshot().ok());
      const std::lock_guard lock(one_at_a_time);
      run.state.add(model.snapshot());
      if (!is_root) return;
      run.evaluation = (*evaluation)->loss;
      run.text = **text;
    });
  }
  ranks.clear();
  return run;
}

void expect_same_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.evaluation, b.evaluation);
  EXPECT_EQ(a.text, b.text);
  EXPECT_TRUE(a.state.tensors() == b.state.tensors());
}

class Ways : public testing::TestWithParam<int64_t> {};

TEST_P(Ways, TrainTheSameModel) {
  const int64_t ranks = GetParam();
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama)}) {
    for (const int64_t micro_batches : {1, 2}) {
      if (kSamples % (ranks * micro_batches) != 0) continue;
      const Trained alone = train(options_for(design, 1, 1, {}));
      const Trained none = train(options_for(design, ranks, micro_batches, {}));
      ASSERT_TRUE(none.state.is_whole());
      EXPECT_LT(distance(design, alone.state, none.state), 1e-5);
      for (const Way& way : ways(ranks)) {
        SCOPED_TRACE(way.name + ", " + std::to_string(micro_batches) + " micro-batches, " +
                     std::string(family_name(design)));
        const Trained run = train(options_for(design, ranks, micro_batches, way));
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

INSTANTIATE_TEST_SUITE_P(Worlds, Ways, testing::Values(1, 2, 4, 8));

TEST(Sharding, RefusesWhatDoesNotGoTogether) {
  const auto refusal = [](const ComposeOptions& options) {
    auto world = comm::make_thread_world(2).value();
    const auto created = Composition::create(options, *world.front(), kClock);
    return created.ok() ? std::string() : created.error().message;
  };
  ComposeOptions options = options_for(kGpt, 2, 1, {});
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
  const ComposeOptions options = options_for(kGpt, 4, 2, way);
  expect_same_bits(train(options), train(options));
}

// Two ranks have the same bits in every way, so the state of one is continued exactly by another.
TEST(Sharding, ContinuesTheStateOfEveryOtherWay) {
  std::vector<Way> all = ways(2);
  Trained reference = train(options_for(kGpt, 2, 1, {}));
  const Trained expected = train(options_for(kGpt, 2, 1, {}), &reference.state, kSteps + 1);
  for (const Way& way : all) {
    SCOPED_TRACE(way.name);
    Trained first = train(options_for(kGpt, 2, 1, way));
    const Trained from_reference =
        train(options_for(kGpt, 2, 1, way), &reference.state, kSteps + 1);
    expect_same_bits(expected, from_reference);
    expect_same_bits(expected, train(options_for(kGpt, 2, 1, {}), &first.state, kSteps + 1));
  }
}

TEST(Sharding, TrainsWithBf16) {
  const Trained none = train(options_for(kGpt, 2, 2, {}));
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    SCOPED_TRACE(sharding_name(sharding));
    Way way{"", {.sharding = sharding, .ranks = sharding == Sharding::kNone ? 1 : 2}};
    ComposeOptions options = options_for(kGpt, 2, 1, way);
    options.precision = kernels::Precision::kBf16;
    ComposeOptions plain = options_for(kGpt, 2, 1, {});
    plain.precision = kernels::Precision::kBf16;
    expect_same_bits(train(plain), train(options));
    way.sharding.reduces_bf16 = true;
    way.sharding.gathers_bf16 = sharding == Sharding::kParameters;
    const Trained rounded = train(options_for(kGpt, 2, 2, way));
    EXPECT_NE(rounded.losses, none.losses);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(rounded.losses[static_cast<size_t>(step)], none.losses[static_cast<size_t>(step)],
                  0.02);
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
