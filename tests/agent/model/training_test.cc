// Sixty steps of training in which micro-batches take the place of ranks: the basis of data
// parallelism.
#include <gtest/gtest.h>

#include <cmath>

#include "agent/optim/clip.h"
#include "agent/optim/optimizer.h"
#include "agent/optim/schedule.h"
#include "tests/agent/model/tiny_gpt.h"

namespace lockstep::model {
namespace {

using test::Text;
using test::TinyGpt;

const ModelConfig kConfig{2, 32, 4, 32, 64};
constexpr int64_t kBatch = 8;
constexpr int64_t kSteps = 60;

// Learnable text: each token determines the next.
Text lesson(uint64_t seed) {
  Text text(kConfig, kBatch, kConfig.context, seed);
  for (size_t i = 0; i < text.tokens.size(); ++i) {
    text.targets[i] = (text.tokens[i] * 5 + 1) % static_cast<int32_t>(kConfig.vocabulary);
  }
  return text;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
  int64_t clipped = 0;
};

Outcome train(int64_t micro_batch) {
  TinyGpt gpt(kConfig, {micro_batch, kConfig.context});
  optim::Optimizer optimizer = optim::Optimizer::create(kConfig, gpt.store.arena(),
                                                        {.parameters = gpt.store.values().data(),
                                                         .gradients = gpt.sink.gradients().data()},
                                                        {}, {}, kernels::cpu_ops())
                                   .value();
  const optim::GradientNorm norm = optim::GradientNorm::create(
      kConfig, gpt.store.arena(), {.gradients = gpt.sink.gradients().data()}, kernels::cpu_ops());
  const optim::LearningRateSchedule schedule{.peak = 1e-2, .warmup_steps = 10, .steps = kSteps};
  Outcome outcome;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const Text text = lesson(static_cast<uint64_t>(step));
    gpt.sink.begin_step();
    double loss = 0;
    for (int64_t first = 0; first < kBatch; first += micro_batch) {
      loss += gpt.forward_backward(text.input(first, micro_batch));
    }
    outcome.losses.push_back(loss / static_cast<double>(text.rows()));
    kernels::SquareSum squares;
    norm.add_squares(gpt.stream, &squares);
    const float scale = kernels::clip_factor(std::sqrt(kernels::value_of(squares)), 0.5);
    if (scale < 1.0f) ++outcome.clipped;
    optimizer.step(gpt.stream, {.learning_rate = optim::learning_rate(schedule, step),
                                .gradient_scale = scale,
                                .step = step});
  }
  outcome.parameters = gpt.store.values();
  return outcome;
}

TEST(Training, EndsWithinOneInAHundredThousandHoweverTheBatchIsSplit) {
  const Outcome whole = train(kBatch);
  EXPECT_GT(whole.losses.front() - whole.losses.back(), 1.0);
  EXPECT_GT(whole.clipped, 5);
  const ParameterArena arena = parameter_arena(kConfig, whole_model(kConfig));
  for (const int64_t micro_batch : {4, 2, 1}) {
    const Outcome split = train(micro_batch);
    for (size_t step = 0; step < whole.losses.size(); ++step) {
      EXPECT_NEAR(split.losses[step], whole.losses[step], 1e-5 * whole.losses[step]);
    }
    for (const ArenaEntry& entry : arena.entries) {
      double gap = 0;
      double size = 0;
      for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
        const double value = whole.parameters[static_cast<size_t>(i)];
        const double other = split.parameters[static_cast<size_t>(i)];
        gap += (value - other) * (value - other);
        size += value * value;
      }
      EXPECT_LE(std::sqrt(gap), 1e-5 * std::sqrt(size)) << "parameter " << entry.id;
    }
  }
}

TEST(Training, IsTheSameBitForBitTheSecondTime) {
  const Outcome first = train(4);
  const Outcome second = train(4);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.parameters, second.parameters);
}

}  // namespace
}  // namespace lockstep::model
