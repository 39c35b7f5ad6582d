#pragma once

#include <cstddef>
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
  // the logits that are asked for.
  const int32_t* targets = nullptr;
  int64_t batch = 0;  // B*T is at most what the MicroBatch was made for
  int64_t sequence = 0;
  // Without targets: the rows whose logits are wanted, at most arena().head_rows of them.
  int64_t logits_begin = 0;
  int64_t logits_rows = 0;
  // Of every token's loss in the gradient: 1 / tokens of the global batch gives that of the mean.
  float gradient_scale = 1.0f;
  int64_t version = kLatestVersion;  // of the parameters, in forward and backward alike
};

// The state of one micro-batch on one stage, from its forward to its backward: activations in one
// arena, used again and again. Values are of the model's activation_dtype(). Move-only. Several may
// be between forward and backward at a time.
class MicroBatch {
 public:
  const MicroBatchInput& input() const { return input_; }
  const ActivationShape& capacity() const { return capacity_; }
  const ActivationArena& arena() const { return arena_; }
  int64_t rows() const { return input_.batch * input_.sequence; }
  bool trains() const { return capacity_.mode == PassMode::kTrain; }

  // Stages without the embedding: [R,C], to be filled before forward.
  View stage_input() const { return at(arena_.layers.front().input); }
  // Stages without the head: [R,C], there after forward.
  View stage_output() const { return at(arena_.output); }
  // Stages with the head: [R], each token's loss in nats: there after an evaluating forward, and
  // after the head's backward of one that trains.
  float* losses() const { return f32(arena_.losses); }
  // [logits_rows,V], there after an evaluating forward without targets.
  View logits() const { return at(arena_.logits); }

  // A tensor of values in the arena, and one that is fp32; null for one that is not kept.
  View at(int64_t place) const { return {memory(place), dtype_}; }
  float* f32(int64_t place) const { return static_cast<float*>(memory(place)); }

 private:
  friend class Gpt;
  MicroBatch(const ActivationShape& capacity, DType dtype, ActivationArena arena)
      : capacity_(capacity), dtype_(dtype), arena_(std::move(arena)) {}
  void* memory(int64_t place) const { return place < 0 ? nullptr : memory_ + place; }

  ActivationShape capacity_;
  DType dtype_;
  ActivationArena arena_;
  Buffer owned_;  // empty where the memory is another's
  std::byte* memory_ = nullptr;
  MicroBatchInput input_;
};

// Whose kernels compute the attention of passes of one shape; others take our own.
struct AttentionChoice {
  AttentionBy by = AttentionBy::kOwn;
  AttentionShape shape = {};
  size_t workspace_bytes = 0;  // dnn::prepare_attention() of the shape; 0 with kOwn
};

struct GptOptions {
  ModelConfig config;
  Stage stage;  // whole_model(config), or a pipeline stage
  Precision precision = Precision::kF32;
  Recompute recompute = Recompute::kNone;
  int64_t head_logits_max = kHeadLogitsMax;
  AttentionChoice attention = {};
};
// Of the passes of a model that is not sharded.
AttentionShape attention_shape(const ModelConfig& config, int64_t batch, int64_t sequence);

// Of activations and their gradients: bf16 on CUDA with Precision::kBf16, else fp32. Losses, the
// statistics of norms and attention, parameters and their gradients are always fp32.
DType activation_dtype(DeviceType device, Precision precision);
// How a model on that device keeps them.
ActivationOptions activation_options(const GptOptions& options, DeviceType device);

// Bytes that passes of a shape need, exactly: a model that is lent them allocates nothing.
struct GptMemory {
  size_t activations = 0;  // each micro-batch
  size_t scratch = 0;      // once, here and below: gradients of activations
  size_t workspace = 0;    // of the operations, on this device and with the threads that are set
  size_t angles = 0;       // of a Llama's rotary embedding (kernels/ops/rotary.h)
};
// On a device of that type, whether or not there is one. Pure, but for set_threads() on the CPU.
// The options' model is one that validate() accepts.
GptMemory gpt_memory(const GptOptions& options, const TensorShard& shard,
                     const ActivationShape& shape, DeviceType device);

// A GPT-2 or Llama, or consecutive blocks of one, as pure computation: it holds no parameter and no
// state of a micro-batch and knows no rank. Blocks are called one by one, forward in ascending
// order, backward in descending order, and are given what they read. Passes allocate nothing;
// scratch grows in make_micro_batch() and in begin() of a shape that was not seen before. One
// thread at a time.
class Gpt {
 public:
  // After set_threads(), which workspaces depend on. The stream, the ops and the region outlive the
  // model. kInvalid for a config that validate() refuses, or a stage without a layer.
  static Result<Gpt> create(const GptOptions& options, const OpTable& ops, Stream& stream,
                            TpRegion& region);
  Gpt(Gpt&&) noexcept;
  Gpt& operator=(Gpt&&) = delete;
  ~Gpt();

  const GptOptions& options() const;
  const ModelConfig& config() const;
  const Stage& stage() const;
  const TensorShard& shard() const;
  // The layout of the rank's parameters and gradients.
  const ParameterArena& parameters() const;
  Stream& stream() const;
  const OpTable& ops() const;

  GptMemory memory_for(const ActivationShape& shape) const;
  // Memory instead of its own, as long as it suffices; it outlives the model. Before the first
  // make_micro_batch().
  struct Lent {
    Workspace scratch;
    Workspace workspace;
    Workspace angles;
  };
  void lend(const Lent& memory);

  // kUnavailable where memory is short.
  Result<MicroBatch> make_micro_batch(const ActivationShape& shape);
  // In memory of another's, memory_for(shape).activations bytes that outlive it; several may have
  // the same if their passes come one after the other.
  Result<MicroBatch> make_micro_batch(const ActivationShape& shape, Workspace memory);
  // A new pass through `batch`. Pointers are the caller's, on the stream's device, and live until
  // the pass is over.
  Status begin(MicroBatch& batch, const MicroBatchInput& input);

  // `parameters` are the block's, in the order of block_parameters().
  Status forward(int64_t block, std::span<const ParamView> parameters, MicroBatch& batch);
  // After the whole forward of `batch`, which trains and has targets. Blocks add to the sink's
  // buffers and say when each is complete. In training the head's logits, losses and gradients are
  // all made here, rows by rows, so that logits are never there as a whole.
  Status backward(int64_t block, std::span<const ParamView> parameters, MicroBatch& batch,
                  GradSink& sink);

  // [R,C]. Stages without the head: the gradient of stage_output(), to be filled before backward.
  // Stages without the embedding: the gradient of stage_input(), there after backward. One for all
  // micro-batches; the pointer holds until make_micro_batch() or begin() of a new shape.
  View stage_gradient();

 private:
  class Impl;
  explicit Gpt(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
