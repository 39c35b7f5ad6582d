#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "agent/model/grad_sink.h"
#include "agent/model/param_store.h"
#include "agent/model/pass_observer.h"
#include "agent/model/tp_region.h"
#include "common/base/result.h"
#include "common/layout/activations.h"
#include "common/layout/model_config.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::model {

// The input of one micro-batch. Legend: B sequences, T tokens each, R = B*T, C width, V the shard's
// part of the padded vocabulary.
struct MicroBatchInput {
  const int32_t* tokens = nullptr;  // [B,T], read by the embedding in forward and backward
  // [B,T], read by the head; negative targets are not counted. Null: no losses; an evaluating pass
  // computes only the requested logits.
  const int32_t* targets = nullptr;
  int64_t batch = 0;  // B*T must fit the MicroBatch's capacity
  int64_t sequence = 0;
  // Without targets: the rows whose logits to compute, at most arena().head_rows of them.
  int64_t logits_begin = 0;
  int64_t logits_rows = 0;
  // Weight of each token's loss in the gradient. 1 / tokens of the global batch gives the gradient
  // of the mean loss.
  float gradient_scale = 1.0f;
  int64_t version = kLatestVersion;  // of the parameters; the same in forward and backward
  PassObserver* observer = nullptr;  // of the head's backward; null: none
};

// The state of one micro-batch on one stage, from its forward to its backward. The activations are
// in one arena, which passes reuse. Elements have the model's activation_dtype(). Move-only.
// Several micro-batches may be between forward and backward at the same time.
class MicroBatch {
 public:
  const MicroBatchInput& input() const { return input_; }
  const ActivationShape& capacity() const { return capacity_; }
  const ActivationArena& arena() const { return arena_; }
  int64_t rows() const { return input_.batch * input_.sequence; }
  bool trains() const { return capacity_.mode == PassMode::kTrain; }

  // On stages without the embedding: [R,C]; fill it before forward.
  kernels::View stage_input() const { return at(arena_.layers.front().input); }
  // On stages without the head: [R,C]; valid after forward.
  kernels::View stage_output() const { return at(arena_.output); }
  // On stages with the head: [R], each token's loss in nats. Valid after forward when evaluating,
  // and after the head's backward when training.
  float* losses() const { return f32(arena_.losses); }
  // [logits_rows,V]; valid after an evaluating forward without targets.
  kernels::View logits() const { return at(arena_.logits); }

  // Returns a tensor of the arena: at() one in activation_dtype(), f32() one in fp32. Null if it is
  // not kept.
  kernels::View at(int64_t place) const { return {memory(place), dtype_}; }
  float* f32(int64_t place) const { return static_cast<float*>(memory(place)); }

 private:
  friend class Gpt;
  MicroBatch(const ActivationShape& capacity, kernels::DType dtype, ActivationArena arena)
      : capacity_(capacity), dtype_(dtype), arena_(std::move(arena)) {}
  void* memory(int64_t place) const { return place < 0 ? nullptr : memory_ + place; }

  ActivationShape capacity_;
  kernels::DType dtype_;
  ActivationArena arena_;
  kernels::Buffer owned_;  // empty if the memory is caller-owned
  std::byte* memory_ = nullptr;
  MicroBatchInput input_;
};

// The attention kernels for passes of one shape; passes of other shapes use our own.
struct AttentionChoice {
  kernels::AttentionBy by = kernels::AttentionBy::kOwn;
  kernels::AttentionShape shape = {};
  size_t workspace_bytes = 0;  // dnn::prepare_attention() for the shape; 0 with kOwn
};

struct GptOptions {
  ModelConfig config;
  Stage stage;  // whole_model(config), or a pipeline stage
  kernels::Precision precision = kernels::Precision::kF32;
  Recompute recompute = Recompute::kNone;
  int64_t head_logits_max = kHeadLogitsMax;
  AttentionChoice attention = {};
};
// Returns the shape of passes of a model that is not sharded.
kernels::AttentionShape attention_shape(const ModelConfig& config, int64_t batch, int64_t sequence);

// Returns the type of activations and their gradients: bf16 on CUDA with Precision::kBf16, else
// fp32. Losses, the statistics of norms and attention, parameters and their gradients are always
// fp32.
kernels::DType activation_dtype(kernels::DeviceType device, kernels::Precision precision);
// Returns how a model on that device stores activations.
ActivationOptions activation_options(const GptOptions& options, kernels::DeviceType device);

// The exact bytes that passes of a shape need. A model given this memory (use_memory()) allocates
// nothing.
struct GptMemory {
  size_t activations = 0;  // per micro-batch
  size_t scratch = 0;      // once, like those below: gradients of activations
  size_t workspace = 0;    // of the operations, for this device and the current set_threads()
  size_t angles = 0;       // for a Llama's rotary embedding (kernels/ops/rotary.h)
};
// Computes the memory for a device type, which need not exist here. Pure, except that the CPU's
// result depends on set_threads(). The options' model must pass validate().
GptMemory gpt_memory(const GptOptions& options, const TensorShard& shard,
                     const ActivationShape& shape, kernels::DeviceType device);

// A GPT-2 or Llama model, or consecutive blocks of one, as pure computation: it holds no parameters
// and no micro-batch state, and knows no ranks. Callers run the blocks one by one, forward in
// ascending and backward in descending order, and pass in what they read. Passes allocate nothing;
// scratch grows in make_micro_batch(), and in begin() for a new shape. One thread at a time.
class Gpt {
 public:
  // Call after set_threads(), which workspaces depend on. The stream, the ops and the region must
  // outlive the model. kInvalid for a config that validate() refuses, or a stage without a layer.
  static Result<Gpt> create(const GptOptions& options, const kernels::OpTable& ops,
                            kernels::Stream& stream, TpRegion& region);
  Gpt(Gpt&&) noexcept;
  Gpt& operator=(Gpt&&) = delete;
  ~Gpt();

  const GptOptions& options() const;
  const ModelConfig& config() const;
  const Stage& stage() const;
  const TensorShard& shard() const;
  // Returns the layout of the rank's parameters and gradients.
  const ParameterArena& parameters() const;
  kernels::Stream& stream() const;
  const kernels::OpTable& ops() const;

  GptMemory memory_for(const ActivationShape& shape) const;
  // Uses caller-owned memory, which must outlive the model, as long as it is large enough. Call
  // before the first make_micro_batch().
  struct CallerMemory {
    kernels::Workspace scratch;
    kernels::Workspace workspace;
    kernels::Workspace angles;
  };
  void use_memory(const CallerMemory& memory);

  // Allocates the activations. kUnavailable if memory is short.
  Result<MicroBatch> make_micro_batch(const ActivationShape& shape);
  // Uses caller-owned memory of memory_for(shape).activations bytes that outlives the micro-batch.
  // Micro-batches may share it if their passes do not overlap.
  Result<MicroBatch> make_micro_batch(const ActivationShape& shape, kernels::Workspace memory);
  // Starts a new pass through `batch`. The input's pointers are caller-owned and must stay valid
  // until the pass is over; tokens and targets are on the stream's device.
  Status begin(MicroBatch& batch, const MicroBatchInput& input);

  // `parameters` are the block's, in the order of block_parameters().
  Status forward(int64_t block, std::span<const ParamView> parameters, MicroBatch& batch);
  // Call after the whole forward of `batch`, which must train and have targets. Adds to the sink's
  // buffers and reports when each is complete. In training, the head computes its logits, losses
  // and gradients here, in chunks of rows, so that the full logits never exist.
  Status backward(int64_t block, std::span<const ParamView> parameters, MicroBatch& batch,
                  GradSink& sink);

  // [R,C]. On stages without the head: the gradient of stage_output(); fill it before backward. On
  // stages without the embedding: the gradient of stage_input(), valid after backward. All
  // micro-batches share it. The pointer is valid until make_micro_batch() or begin() with a new
  // shape.
  kernels::View stage_gradient();

 private:
  class Impl;
  explicit Gpt(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::model
