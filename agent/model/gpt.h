#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "agent/model/grad_sink.h"
#include "agent/model/param_store.h"
#include "agent/model/tp_region.h"
#include "common/base/result.h"
#include "common/layout/activations.h"
#include "common/layout/model_config.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep {

// What one micro-batch computes on. Legend: B sequences, T tokens each, R = B*T, C width, V the
// shard's part of the padded vocabulary.
struct MicroBatchInput {
  const int32_t* tokens = nullptr;  // [B,T], read by the embedding in forward and backward
  // [B,T], read by the head; below 0: not counted. Null: no losses, an evaluating pass ends with
  // the logits.
  const int32_t* targets = nullptr;
  int64_t batch = 0;  // B*T is at most what the MicroBatch was made for
  int64_t sequence = 0;
  // Of every token's loss in the gradient: 1 / tokens of the global batch gives that of the mean.
  float gradient_scale = 1.0f;
  int64_t version = kLatestVersion;  // of the parameters, in forward and backward alike
};

// The state of one micro-batch on one stage, from its forward to its backward: activations in one
// arena, allocated once and used again. Move-only. Several may be between forward and backward at a
// time.
class MicroBatch {
 public:
  const MicroBatchInput& input() const { return input_; }
  const ActivationShape& capacity() const { return capacity_; }
  const ActivationArena& arena() const { return arena_; }
  int64_t rows() const { return input_.batch * input_.sequence; }
  bool trains() const { return capacity_.mode == PassMode::kTrain; }

  // Stages without the embedding: [R,C], to be filled before forward.
  float* stage_input() const { return at(arena_.layers.front().input); }
  // Stages without the head: [R,C], there after forward.
  float* stage_output() const { return at(arena_.output); }
  // Stages with the head: [R], each token's loss in nats, there after forward.
  float* losses() const { return at(arena_.losses); }
  // [R,V], there after an evaluating forward without shards (a training one makes gradients of
  // them, in place).
  float* logits() const { return at(arena_.logits); }
  // A tensor of the arena; null for one that is not kept.
  float* at(int64_t offset) const { return offset < 0 ? nullptr : memory_.f32() + offset; }

 private:
  friend class Gpt;
  MicroBatch(const ActivationShape& capacity, ActivationArena arena, Buffer memory)
      : capacity_(capacity), arena_(std::move(arena)), memory_(std::move(memory)) {}

  ActivationShape capacity_;
  ActivationArena arena_;
  Buffer memory_;
  MicroBatchInput input_;
};

struct GptOptions {
  ModelConfig config;
  Stage stage;  // whole_model(config), or a pipeline stage
  Precision precision = Precision::kF32;
};

// A GPT-2, or consecutive blocks of one, as pure computation: it holds no parameter and no state of
// a micro-batch and knows no rank. Blocks are called one by one, forward in ascending order,
// backward in descending order, and are given what they read. Passes allocate nothing; scratch
// grows in make_micro_batch() and in begin() of a shape that was not seen before. One thread at a
// time.
class Gpt {
 public:
  // After set_threads(), which workspaces depend on. The stream, the ops and the region outlive the
  // model. kInvalid for a config that validate() refuses, or a stage without a layer.
  static Result<Gpt> create(const GptOptions& options, const OpTable& ops, Stream& stream,
                            TpRegion& region);
  Gpt(Gpt&&) noexcept;
  Gpt& operator=(Gpt&&) = delete;
  ~Gpt();

  const ModelConfig& config() const;
  const Stage& stage() const;
  const TensorShard& shard() const;
  // The layout of the rank's parameters and gradients.
  const ParameterArena& parameters() const;
  Stream& stream() const;
  const OpTable& ops() const;

  // kUnavailable where memory is short.
  Result<MicroBatch> make_micro_batch(const ActivationShape& shape);
  // A new pass through `batch`. Pointers are the caller's, on the stream's device, and live until
  // the pass is over.
  Status begin(MicroBatch& batch, const MicroBatchInput& input);

  // `parameters` are the block's, in the order of block_parameters().
  Status forward(int64_t block, std::span<const ParamView> parameters, MicroBatch& batch);
  // After the whole forward of `batch`, which trains and has targets. Blocks add to the sink's
  // buffers and say when each is complete.
  Status backward(int64_t block, std::span<const ParamView> parameters, MicroBatch& batch,
                  GradSink& sink);

  // [R,C]. Stages without the head: the gradient of stage_output(), to be filled before backward.
  // Stages without the embedding: the gradient of stage_input(), there after backward. One for all
  // micro-batches; the pointer holds until make_micro_batch() or begin() of a new shape.
  float* stage_gradient();

 private:
  class Impl;
  explicit Gpt(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
