#include "agent/model/convnet/convnet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <thread>

#include "common/base/random.h"
#include "tests/agent/model/tiny_mlp.h"

namespace lockstep::model {
namespace {

ConvnetConfig small(std::string_view preset) {
  ConvnetConfig config = convnet_preset(preset)->config;
  const int64_t edge = convnet_preset(preset)->edge_min;
  config.height = edge;
  config.width = edge + 1;
  config.classes = 7;
  return config;
}

// Random images and classes.
struct Images {
  const ConvnetConfig config;
  std::vector<float> pixels;
  std::vector<int32_t> labels;

  Images(const ConvnetConfig& of, int64_t count, uint64_t seed = 1) : config(of) {
    Random random(seed);
    pixels.resize(static_cast<size_t>(count * values()));
    for (float& pixel : pixels) pixel = 2 * random.uniform() - 1;
    for (int64_t i = 0; i < count; ++i) {
      labels.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(config.classes))));
    }
  }
  int64_t values() const { return config.height * config.width * config.channels; }
  DeviceBatch batch(int64_t first, int64_t rows) const {
    return {.rows = rows,
            .counted = rows,
            .tensors = {pixels.data() + first * values(), labels.data() + first}};
  }
};

// The largest magnitude of a parameter's gradient.
float largest(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

class EveryConvnet : public ::testing::TestWithParam<const char*> {};

// Along the gradient of each parameter, which is the steepest direction.
TEST_P(EveryConvnet, HasTheGradientsOfFiniteDifferences) {
  const ConvnetConfig config = small(GetParam());
  const Images images(config, 4);
  test::TinyMlp net(config, 4);
  const auto loss = [&] { return net.forward_backward(images.batch(0, 4), 4) / 4; };
  net.sink.begin_step();
  (void)loss();
  const std::vector<float> gradients(net.sink.gradients().begin(), net.sink.gradients().end());
  for (const Parameter& parameter : parameter_table(config)) {
    if (parameter.is_statistic) continue;
    const ArenaEntry& entry = *net.store.arena().find(parameter.id);
    const std::span<const float> gradient = std::span(gradients).subspan(
        static_cast<size_t>(entry.offset), static_cast<size_t>(entry.count));
    double square = 0;
    for (const float value : gradient) square += static_cast<double>(value) * value;
    ASSERT_GT(square, 0) << parameter.name;
    const std::span<float> values = net.store.values_of(parameter.id);
    const std::vector<float> kept(values.begin(), values.end());
    // Changes the loss by about 0.001 at most, and no weight by more than 0.01: ReLU has corners.
    const double step = std::min(0.001 / square, 0.01 / static_cast<double>(largest(gradient)));
    const auto loss_at = [&](double distance) {
      for (size_t i = 0; i < kept.size(); ++i) {
        values[i] = kept[i] + static_cast<float>(distance) * gradient[i];
      }
      return loss();
    };
    const double difference = loss_at(step / 2) - loss_at(-step / 2);
    std::copy(kept.begin(), kept.end(), values.begin());
    constexpr double kNoise = 2e-6;  // of a loss in fp32
    EXPECT_NEAR(difference, step * square, 0.1 * step * square + kNoise) << parameter.name;
  }
}

TEST_P(EveryConvnet, ReportsItsGradientsFromTheLastToTheFirst) {
  const ConvnetConfig config = small(GetParam());
  test::TinyMlp net(config, 2);
  (void)net.forward_backward(Images(config, 2).batch(0, 2), 2);
  std::vector<int64_t> expected;
  for (int64_t id = std::ssize(parameter_table(config)); id-- > 0;) expected.push_back(id);
  EXPECT_EQ(net.sink.ready_ids(), expected);
}

INSTANTIATE_TEST_SUITE_P(Presets, EveryConvnet,
                         ::testing::Values("lenet5", "resnet20", "resnet18"));

// The statistics of a batch are where its running ones go: a rate of 1 makes them equal.
TEST(Convnet, EvaluatesWithRunningStatisticsAsItTrainsWithThoseOfTheBatch) {
  const ConvnetConfig config = small("resnet20");
  const Images images(config, 6);
  test::TinyMlp net(config, 6);
  net.sink.begin_step();
  const double trained = net.forward_backward(images.batch(0, 6), 6);
  EXPECT_GT(std::abs(net.loss(images.batch(0, 6)) - trained), 1e-3) << "the first ones are 0 and 1";
  for (const Parameter& parameter : parameter_table(config)) {
    if (!parameter.is_statistic) continue;
    const std::span<float> running = net.store.values_of(parameter.id);
    const std::span<const float> away = net.sink.of(parameter.id);
    // Running variances are divided by n - 1, those of the batch by n.
    const ConvUnit unit = convnet_units(config)[static_cast<size_t>(parameter.block)];
    const auto n = static_cast<float>(6 * unit.conv_height() * unit.conv_width());
    const bool is_variance = parameter.name.ends_with("running_var");
    const float factor = is_variance ? (n - 1) / n : 1;
    for (size_t i = 0; i < running.size(); ++i) running[i] = (running[i] - away[i]) * factor;
  }
  EXPECT_NEAR(net.loss(images.batch(0, 6)), trained, 1e-3);
}

TEST(Convnet, HasTopHitsThatIncludeTheHits) {
  const ConvnetConfig config = small("resnet20");
  const Images images(config, 32);
  test::TinyMlp net(config, 32);
  (void)net.loss(images.batch(0, 32));
  const double right = net.sum_of(net.evaluating->hits());
  const double top = net.sum_of(net.evaluating->top_hits());
  EXPECT_LE(right, top);
  EXPECT_GT(top, 12) << "of 32, five of seven classes by chance";
  EXPECT_EQ(net.training->top_hits().count, 0);
}

// Ranks as threads that meet in each sum.
class Meeting final : public BatchSums {
 public:
  Meeting(std::vector<std::vector<double>>& values, std::barrier<>& all, size_t rank)
      : values_(values), all_(all), rank_(rank) {}
  Status add_up(double* values, int64_t count, Pass) override {
    values_[rank_].assign(values, values + count);
    all_.arrive_and_wait();
    std::fill(values, values + count, 0.0);
    for (const std::vector<double>& of_rank : values_) {
      for (int64_t i = 0; i < count; ++i) values[i] += of_rank[static_cast<size_t>(i)];
    }
    all_.arrive_and_wait();
    return {};
  }

 private:
  std::vector<std::vector<double>>& values_;
  std::barrier<>& all_;
  size_t rank_;
};

TEST(Convnet, WithSumsOfAllRanksComputesWhatOneRankDoes) {
  const ConvnetConfig config = small("resnet20");
  const Images images(config, 8);
  test::TinyMlp whole(config, 8);
  whole.sink.begin_step();
  const double loss = whole.forward_backward(images.batch(0, 8), 8);
  constexpr size_t kRanks = 2;
  const int64_t first_rows = 5;  // ranks may have different numbers of rows
  std::vector<std::vector<double>> values(kRanks);
  std::barrier<> all(kRanks);
  std::vector<std::unique_ptr<Meeting>> meetings;
  std::vector<std::unique_ptr<test::TinyMlp>> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    meetings.push_back(std::make_unique<Meeting>(values, all, rank));
    ranks.push_back(
        std::make_unique<test::TinyMlp>(config, 8, kernels::cpu_ops(), meetings.back().get()));
    ranks.back()->sink.begin_step();
  }
  double losses[kRanks] = {};
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        losses[rank] = ranks[rank]->forward_backward(
            rank == 0 ? images.batch(0, first_rows) : images.batch(first_rows, 8 - first_rows), 8);
      });
    }
  }
  EXPECT_NEAR(losses[0] + losses[1], loss, 1e-5 * loss);
  for (const Parameter& parameter : parameter_table(config)) {
    const std::span<const float> expected = whole.sink.of(parameter.id);
    const float limit = 1e-5f * std::max(1.0f, largest(expected));
    for (size_t i = 0; i < expected.size(); ++i) {
      const float sum = ranks[0]->sink.of(parameter.id)[i] + ranks[1]->sink.of(parameter.id)[i];
      ASSERT_NEAR(sum, expected[i], limit) << parameter.name << " " << i;
    }
  }
}

TEST(Convnet, RefusesPartsOfAResidualBlockAndTexts) {
  kernels::Stream stream;
  WholeTensor whole;
  const ConvnetConfig config = small("lenet5");
  const auto made = [&](const ModelOptions& options) {
    return make_model(options, kernels::cpu_ops(), stream, whole);
  };
  EXPECT_EQ(made({.design = small("resnet20"), .stage = {0, 2}}).error().message,
            "[model] expected a stage of whole layers and residual blocks, got blocks 0 to 2");
  ConvnetConfig tiny = config;
  tiny.height = 11;
  EXPECT_NE(made({.design = tiny, .stage = {0, 5}})
                .error()
                .message.find("model.imageHeight: 11 is not between 12 and 4096"),
            std::string::npos);
  test::TinyMlp net(config, 2);
  EXPECT_EQ(net.model->generate(net.store, {.prompt = {1}}).error().message,
            "[generate] expected a transformer, got a convnet: it has no text to continue");
}

}  // namespace
}  // namespace lockstep::model
