#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "agent/model/passes.h"
#include "agent/model/transformer/gpt.h"
#include "common/base/random.h"
#include "tests/agent/model/initialise_arena.h"

namespace lockstep::test {

// All parameters of a model's stage in one arena, on the CPU.
class ArenaStore final : public model::ParamStore {
 public:
  ArenaStore(const ModelDesign& design, const Stage& stage, const TensorShard& shard = {})
      : design_(design), arena_(parameter_arena(design, stage, shard)), values_(size()) {}

  void initialise(const TensorShard& shard, uint64_t seed) {
    model::initialise_arena(design_, arena_, shard, seed, values_.data());
  }
  // Makes products read these from now on.
  void use_copies(std::vector<kernels::Bf16> copies) { copies_ = std::move(copies); }

  const ParameterArena& arena() const { return arena_; }
  std::vector<float>& values() { return values_; }
  std::span<float> values_of(int64_t id) { return part(values_, id); }
  int held() const { return held_; }

  void prefetch(const model::BlockUse&) override {}
  Result<std::span<const model::ParamView>> get(const model::BlockUse& use) override {
    ++held_;
    views_.clear();
    for (const int64_t id : block_parameters(design_, use.block)) {
      const auto offset = static_cast<size_t>(arena_.find(id)->offset);
      const float* value = values_.data() + offset;
      views_.push_back({.value = value,
                        .product = copies_.empty() ? kernels::ConstView(value)
                                                   : kernels::ConstView(copies_.data() + offset)});
    }
    return std::span<const model::ParamView>(views_);
  }
  void release(const model::BlockUse&) override { --held_; }

 private:
  size_t size() const { return static_cast<size_t>(arena_.count); }
  std::span<float> part(std::vector<float>& values, int64_t id) const {
    const ArenaEntry& entry = *arena_.find(id);
    return std::span(values).subspan(static_cast<size_t>(entry.offset),
                                     static_cast<size_t>(entry.count));
  }

  ModelDesign design_;
  ParameterArena arena_;
  std::vector<float> values_;
  std::vector<kernels::Bf16> copies_;
  std::vector<model::ParamView> views_;
  int held_ = 0;
};

// Gradients in one arena. Records the ids that became ready, in order.
class ArenaSink final : public model::GradSink {
 public:
  explicit ArenaSink(const ParameterArena& arena)
      : arena_(arena), gradients_(static_cast<size_t>(arena.count)) {
    ready_.reserve(1024);
  }

  void begin_step() {
    std::fill(gradients_.begin(), gradients_.end(), 0.0f);
    ready_.clear();
  }
  std::vector<float>& gradients() { return gradients_; }
  std::span<float> of(int64_t id) {
    const ArenaEntry& entry = *arena_.find(id);
    return std::span(gradients_)
        .subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.count));
  }
  const std::vector<int64_t>& ready_ids() const { return ready_; }
  int micro_batches() const { return micro_batches_; }

  float* buffer(int64_t id) override { return of(id).data(); }
  Status ready(int64_t id) override {
    ready_.push_back(id);
    return {};
  }
  Status end_micro_batch() override {
    ++micro_batches_;
    return {};
  }

 private:
  ParameterArena arena_;
  std::vector<float> gradients_;
  std::vector<int64_t> ready_;
  int micro_batches_ = 0;
};

// Random tokens, and as targets the tokens that follow them.
struct Text {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  int64_t batch = 0;
  int64_t sequence = 0;

  Text(const ModelConfig& config, int64_t batch_size, int64_t length, uint64_t seed)
      : batch(batch_size), sequence(length) {
    Random random(seed);
    const auto vocabulary = static_cast<uint64_t>(config.vocabulary);
    for (int64_t i = 0; i < batch * sequence; ++i) {
      tokens.push_back(static_cast<int32_t>(random.below(vocabulary)));
      targets.push_back(static_cast<int32_t>(random.below(vocabulary)));
    }
  }
  int64_t rows() const { return batch * sequence; }
  // Returns sequences [first, first + count), with the gradient scale of the mean loss over all
  // sequences.
  model::GptInput input(int64_t first, int64_t count) const {
    return {.tokens = tokens.data() + first * sequence,
            .targets = targets.data() + first * sequence,
            .batch = count,
            .sequence = sequence,
            .gradient_scale = 1.0f / static_cast<float>(rows())};
  }
  model::GptInput input() const { return input(0, batch); }
};

// Returns the sum of a micro-batch's losses in nats, on the CPU.
inline double sum_of_losses(const model::GptBatch& batch) {
  kernels::Stream stream;
  double sum = 0;
  kernels::cpu_ops().loss_sum(stream,
                              {.losses = batch.token_losses(), .count = batch.rows(), .sum = &sum});
  return sum;
}

// A model on the CPU with its store, sink and one micro-batch.
struct TinyGpt {
  kernels::Stream stream;
  model::WholeTensor whole;
  ModelConfig config;
  model::Gpt model;
  ArenaStore store;
  ArenaSink sink;
  model::GptBatch batch;

  TinyGpt(const model::GptOptions& options, const ActivationShape& shape, uint64_t seed = 1)
      : config(options.config),
        model(model::Gpt::create(options, kernels::cpu_ops(), stream, whole).value()),
        store(config, options.stage),
        sink(store.arena()),
        batch(model.make_micro_batch(shape).value()) {
    store.initialise({}, seed);
  }
  TinyGpt(const ModelConfig& model_config, const ActivationShape& shape, uint64_t seed = 1,
          kernels::Precision precision = kernels::Precision::kF32)
      : TinyGpt(
            {.config = model_config, .stage = whole_model(model_config), .precision = precision},
            shape, seed) {}

  // Returns the sum of the losses of an evaluating pass.
  double loss(const model::GptInput& input) {
    if (!evaluating_) {
      const ActivationShape& shape = batch.capacity();
      evaluating_.emplace(
          model.make_micro_batch({shape.batch, shape.sequence, PassMode::kEvaluate}).value());
    }
    EXPECT_TRUE(evaluating_->begin(input).ok());
    EXPECT_TRUE(model::forward_pass(model, store, *evaluating_).ok());
    return sum_of_losses(*evaluating_);
  }
  void forward(const model::GptInput& input) {
    EXPECT_TRUE(batch.begin(input).ok());
    EXPECT_TRUE(model::forward_pass(model, store, batch).ok());
  }
  // Adds to the sink's gradients and returns the sum of the losses.
  double forward_backward(const model::GptInput& input) {
    forward(input);
    EXPECT_TRUE(model::backward_pass(model, store, batch, sink).ok());
    return sum_of_losses(batch);
  }

 private:
  std::optional<model::GptBatch> evaluating_;
};

}  // namespace lockstep::test
