// Ranks as threads that train a small model, evaluate it and sample from it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/compose.h"
#include "tests/agent/parallel/kept_state.h"

namespace lockstep::parallel {

inline constexpr int64_t kSamples = 8;  // of a step, over all ranks and micro-batches
inline constexpr int64_t kSequence = 8;
inline constexpr int64_t kVocabulary = 29;
inline constexpr int kSteps = 6;
// Larger rates move these small models so far that rounding shows in the fifth digit.
inline constexpr double kRate = 0.003;
inline const MlpConfig kTable{.inputs = 7, .hidden = {24, 9, 16}, .outputs = 3};

// Small models with 4 heads.
constexpr ModelConfig small_gpt(int64_t layers) {
  return {
      .layers = layers, .width = 16, .heads = 4, .context = kSequence, .vocabulary = kVocabulary};
}
constexpr ModelConfig small_llama(int64_t layers, int64_t kv_heads) {
  ModelConfig config = small_gpt(layers);
  config.family = Family::kLlama;
  config.hidden = 24;
  config.tied = false;
  config.kv_heads = kv_heads;
  return config;
}

constexpr ModelConfig small_bert(int64_t layers) {
  ModelConfig config = small_gpt(layers);
  config.family = Family::kBert;
  config.hidden = 24;
  config.norm_epsilon = 1e-12;
  return config;
}

// The samples of steps, of which a rank takes its part of each: texts, or rows of a table or
// pixels.
class Samples final : public BatchFeed {
 public:
  // `place`: the rank's, among those with other samples.
  Samples(const ComposeOptions& options, int64_t place)
      : design_(batch_design(options)),
        is_text_(transformer_of(options.design) != nullptr),
        is_masked_(predicts_masked(options.design)),
        classes_(classes_of(options.design)),
        first_(place * kSamples / options.mesh.data),
        samples_(kSamples / options.mesh.data),
        batch_(options.micro_batch) {}

  Result<std::optional<DeviceBatch>> next() override {
    tokens_.clear();
    features_.clear();
    targets_.clear();
    for (int64_t i = 0; i < batch_; ++i) {
      const int64_t sample = step_ * kSamples + first_ + taken_++;
      is_text_ ? add_text(sample) : add_row(sample);
    }
    if (taken_ == samples_) {
      taken_ = 0;
      ++step_;
    }
    const void* inputs = is_text_ ? static_cast<const void*>(tokens_.data())
                                  : static_cast<const void*>(features_.data());
    return std::optional<DeviceBatch>({.rows = batch_,
                                       .counted = batch_ * design_.counted,
                                       .tensors = {inputs, targets_.data()}});
  }

 private:
  void add_text(int64_t sample) {
    const auto token = [&](int64_t place) {
      return static_cast<int32_t>((sample * 7 + place * (sample % 5 + 1)) % kVocabulary);
    };
    for (int64_t place = 0; place < kSequence; ++place) {
      tokens_.push_back(token(place));
      targets_.push_back(is_masked_ ? -1 : token(place + 1));
    }
    if (!is_masked_) return;
    const int64_t masked = std::ssize(tokens_) - kSequence + sample % kSequence;  // one of each
    std::swap(tokens_[static_cast<size_t>(masked)], targets_[static_cast<size_t>(masked)]);
    tokens_[static_cast<size_t>(masked)] = kVocabulary - 1;
  }
  void add_row(int64_t sample) {
    for (int64_t column = 0; column < design_.tensors[0].values; ++column) {
      features_.push_back(static_cast<float>(sample * (column + 3) % 11) / 5 - 1);
    }
    targets_.push_back(static_cast<int32_t>(sample % classes_));
  }
  static int64_t classes_of(const ModelDesign& design) {
    const auto* convnet = std::get_if<ConvnetConfig>(&design);
    return convnet != nullptr ? convnet->classes : kTable.outputs;
  }

  BatchDesign design_;
  bool is_text_;
  bool is_masked_;
  int64_t classes_;
  int64_t first_;
  int64_t samples_;
  int64_t batch_;
  int64_t step_ = 0;
  int64_t taken_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<float> features_;
  std::vector<int32_t> targets_;
};

// The first `count` batches of another feed.
class FirstBatches final : public BatchFeed {
 public:
  FirstBatches(BatchFeed& feed, int64_t count) : feed_(feed), left_(count) {}
  Result<std::optional<DeviceBatch>> next() override {
    if (left_-- <= 0) return std::optional<DeviceBatch>();
    return feed_.next();
  }

 private:
  BatchFeed& feed_;
  int64_t left_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  double evaluation = 0;      // of the samples of the step after the last one
  double uneven = 0;          // of some of the next samples, more of them on some ranks
  std::vector<int32_t> text;  // if the model continues texts
  KeptState state;
};

inline ComposeOptions options_for(const ModelDesign& design, const Mesh& mesh,
                                  int64_t micro_batches) {
  return {.design = design,
          .mesh = mesh,
          .micro_batches = micro_batches,
          .micro_batch = kSamples / mesh.data / micro_batches,
          .sequence = transformer_of(design) != nullptr ? kSequence : 1,
          .bucket_bytes = 4096,
          .optimizer = {.epsilon = 1e-5}};
}

// Where a run begins: at a seed, after `steps` steps of a state, or at the parameters of a state.
struct TrainingStart {
  KeptState* state = nullptr;
  int64_t steps = 0;
  KeptState* imported = nullptr;
  int64_t flush_every = kSteps;  // steps, if they overlap
};

inline void begin(Composition& model, const TrainingStart& start, bool is_root,
                  std::mutex& one_at_a_time) {
  if (start.imported != nullptr) {
    ASSERT_TRUE(model.load_parameters(is_root ? start.imported : nullptr).ok());
  } else if (start.state != nullptr) {
    {
      const std::lock_guard lock(one_at_a_time);
      ASSERT_TRUE(model.read_share(*start.state).ok());
    }
    ASSERT_TRUE(model.exchange_shares(start.steps).ok());
  } else {
    ASSERT_TRUE(model.initialise(7).ok());
  }
}

// Trains a rank, evaluates, and continues a text if the model does so.
inline void train_rank(const ComposeOptions& options, const TrainingStart& start,
                       comm::Communicator& world, std::mutex& one_at_a_time, Trained& run) {
  const SystemClock clock;
  auto created = Composition::create(options, world, clock);
  ASSERT_TRUE(created.ok()) << created.error().message;
  Composition& model = **created;
  const bool is_root = world.rank() == 0;
  const int64_t place = model.place().data;
  ASSERT_NO_FATAL_FAILURE(begin(model, start, is_root, one_at_a_time));
  Samples feed(options, place);
  const int64_t last = start.steps + kSteps;
  for (int64_t step = start.steps + 1; step <= last; ++step) {
    const int64_t every = start.flush_every;
    const auto report =
        model.run_step(feed, {.step = step,
                              .learning_rate = kRate,
                              .flush = std::min((step + every - 1) / every * every, last),
                              .clip_norm = steps_overlap(options) ? 0 : 0.5});
    ASSERT_TRUE(report.ok()) << report.error().message;
    if (!is_root) continue;
    run.losses.push_back(report->numbers.loss.value());
    run.norms.push_back(report->numbers.gradient_norm.value());
  }
  FirstBatches next(feed, options.micro_batches);
  const auto evaluation = model.evaluate(next, [] { return false; });
  ASSERT_TRUE(evaluation.ok() && evaluation->has_value());
  FirstBatches few(feed, 1 + place % 2);
  const auto uneven = model.evaluate(few, [] { return false; });
  ASSERT_TRUE(uneven.ok() && uneven->has_value());
  if (transformer_of(options.design) != nullptr && !predicts_masked(options.design)) {
    const auto text = model.generate({.prompt = {1, 2, 3}, .tokens = 5, .temperature = 0});
    ASSERT_TRUE(text.ok()) << text.error().message;
    ASSERT_EQ(text->has_value(), place == 0);
    if (is_root) run.text = **text;
  }
  model.reserve_snapshot();
  ASSERT_TRUE(model.take_snapshot().ok());
  const std::lock_guard lock(one_at_a_time);
  run.state.add(model.snapshot());
  if (!is_root) return;
  run.evaluation = (*evaluation)->loss;
  run.uneven = (*uneven)->loss;
}

inline Trained train(const ComposeOptions& options, const TrainingStart& start = {}) {
  // By number of ranks: all runs use the same worlds in turn.
  static std::map<int64_t, std::vector<std::unique_ptr<comm::Communicator>>> worlds;
  auto& world = worlds[options.mesh.size()];
  if (world.empty()) {
    world = comm::make_thread_world(static_cast<int>(options.mesh.size())).value();
  }
  Trained run{.losses = {}, .norms = {}, .text = {}, .state = KeptState(options.design)};
  std::mutex one_at_a_time;
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) {
    ranks.emplace_back(
        [&, rank = communicator.get()] { train_rank(options, start, *rank, one_at_a_time, run); });
  }
  ranks.clear();
  return run;
}

// Returns the state that the ranks save after they have loaded it.
inline KeptState saved_after_load(const ComposeOptions& options, KeptState& state) {
  const SystemClock clock;
  KeptState kept(options.design);
  auto world = comm::make_thread_world(static_cast<int>(options.mesh.size())).value();
  std::mutex one_at_a_time;
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) {
    ranks.emplace_back([&, world = communicator.get()] {
      auto model = Composition::create(options, *world, clock);
      ASSERT_TRUE(model.ok()) << model.error().message;
      {
        const std::lock_guard lock(one_at_a_time);
        ASSERT_TRUE((*model)->read_share(state).ok());
      }
      ASSERT_TRUE((*model)->exchange_shares(kSteps).ok());
      (*model)->reserve_snapshot();
      ASSERT_TRUE((*model)->take_snapshot().ok());
      const std::lock_guard lock(one_at_a_time);
      kept.add((*model)->snapshot());
    });
  }
  ranks.clear();
  return kept;
}

inline void expect_same_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.evaluation, b.evaluation);
  EXPECT_EQ(a.uneven, b.uneven);
  EXPECT_EQ(a.text, b.text);
  EXPECT_TRUE(a.state.tensors() == b.state.tensors());
}

// They differ by rounding.
inline void expect_close(const ModelDesign& design, const Trained& a, const Trained& b) {
  ASSERT_TRUE(a.state.is_whole());
  ASSERT_TRUE(b.state.is_whole());
  EXPECT_LT(distance(design, a.state, b.state), 1e-5);
  for (size_t step = 0; step < a.losses.size(); ++step) {
    EXPECT_NEAR(a.losses[step], b.losses[step], 1e-5);
    EXPECT_NEAR(a.norms[step], b.norms[step], 1e-5);
  }
  EXPECT_NEAR(a.evaluation, b.evaluation, 1e-5);
  EXPECT_EQ(a.text, b.text);
}

}  // namespace lockstep::parallel
