#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/model/attention_choice.h"
#include "agent/model/dropout.h"
#include "agent/model/model.h"
#include "agent/model/tp_region.h"
#include "common/base/result.h"
#include "common/layout/activations.h"
#include "common/layout/model_config.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::model {

// The input of one micro-batch. Legend: B sequences, T tokens each, R = B*T, S the rows that the
// shard keeps between regions, C width, V the shard's part of the padded vocabulary.
struct GptInput {
  const int32_t* tokens = nullptr;  // [B,T], read by the embedding in forward and backward
  // [B,T], read by the head; negative targets are not counted. Null: no losses; an evaluating pass
  // computes only the requested logits.
  const int32_t* targets = nullptr;
  int64_t batch = 0;  // B*T must fit the micro-batch's capacity
  int64_t sequence = 0;
  // Without targets: the rows whose logits to compute, at most arena().head_rows of them.
  int64_t logits_begin = 0;
  int64_t logits_rows = 0;
  float gradient_scale = 1.0f;  // these four as in PassInput
  int64_t version = kLatestVersion;
  PassObserver* observer = nullptr;
  int64_t first_sample = 0;
};

class GptImpl;

// The activations of a micro-batch are in one arena, which passes reuse. Elements have the model's
// activation_dtype(). Move-only.
class GptBatch final : public MicroBatch {
 public:
  // Starts a new pass of sequences of the capacity's length.
  Status begin(const PassInput& input) override;
  // Starts a new pass of any sequences that fit. Prepares the memory for a new shape.
  Status begin(const GptInput& input);
  Status forward(int64_t block, std::span<const ParamView> parameters) override;
  // The micro-batch has targets. In training, the head computes its logits, losses and gradients
  // here, in chunks of rows, so that the full logits never exist.
  Status backward(int64_t block, std::span<const ParamView> parameters, GradSink& sink) override;
  Status backward_weights(int64_t block, GradSink& sink) override;
  int64_t version() const override { return input_.version; }
  // Each token's loss in nats.
  Terms losses() const override {
    return token_losses() == nullptr ? Terms() : Terms{token_losses(), rows()};
  }
  Terms hits() const override { return {}; }

  const GptInput& input() const { return input_; }
  const ActivationShape& capacity() const { return capacity_; }
  const ActivationArena& arena() const { return arena_; }
  int64_t rows() const { return input_.batch * input_.sequence; }  // R
  int64_t kept_rows() const;                                       // S
  bool trains() const override { return capacity_.mode == PassMode::kTrain; }

  // [S,C] passes between stages.
  kernels::View stage_input() const override { return at(arena_.layers.front().input); }
  kernels::View stage_output() const override { return at(arena_.output); }
  int64_t input_count() const override;
  int64_t output_count() const override { return input_count(); }
  kernels::View input_gradient() const override;
  kernels::View output_gradient() const override { return input_gradient(); }
  // On stages with the head: [R].
  float* token_losses() const { return f32(arena_.losses); }
  // [logits_rows,V]; valid after an evaluating forward without targets.
  kernels::View logits() const { return at(arena_.chunk.logits); }

  // Returns a tensor of the arena: at() one in activation_dtype(), f32() one in fp32. Null if it is
  // not kept.
  kernels::View at(int64_t place) const { return {memory(place), dtype_}; }
  float* f32(int64_t place) const { return static_cast<float*>(memory(place)); }

 private:
  friend class Gpt;
  GptBatch(GptImpl& model, const ActivationShape& capacity);
  void* memory(int64_t place) const { return place < 0 ? nullptr : memory_ + place; }

  GptImpl* model_;
  ActivationShape capacity_;
  kernels::DType dtype_;
  ActivationArena arena_;
  kernels::Buffer owned_;  // empty if the memory is caller-owned
  std::byte* memory_ = nullptr;
  GptInput input_;
};

struct GptOptions {
  ModelConfig config;
  Stage stage;  // whole_model(config), or a pipeline stage
  kernels::Precision precision = kernels::Precision::kF32;
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;  // ActivationOptions::splits_rows
  bool splits_backward = false;    // ModelOptions::splits_backward
  int64_t head_logits_max = kHeadLogitsMax;
  AttentionChoice attention = {};
  // Drops values of the embedding (in a BERT, of its norm), and of the outputs of attention and MLP
  // before they are added to the stream.
  DropoutOptions dropout = {};
};
// Returns the shape of attention in the passes of a shard.
kernels::AttentionShape attention_shape(const ModelConfig& config, const TensorShard& shard,
                                        int64_t batch, int64_t sequence);

// Returns how a model on that device stores activations.
ActivationOptions activation_options(const GptOptions& options, kernels::DeviceType device);

// Computes the memory for a device type (ModelMemory, model_memory()).
ModelMemory gpt_memory(const GptOptions& options, const TensorShard& shard,
                       const ActivationShape& shape, kernels::DeviceType device);

// A GPT-2, Llama or BERT model, or consecutive blocks of one. Scratch grows in make_micro_batch(),
// and in GptBatch::begin() for a new shape.
class Gpt final : public Model {
 public:
  // Call after set_threads(), which workspaces depend on. The stream, the ops and the region must
  // outlive the model. kInvalid for a config that validate() refuses, a stage without a layer, or
  // a context that the shards cannot divide with sequence_parallel.
  static Result<Gpt> create(const GptOptions& options, const kernels::OpTable& ops,
                            kernels::Stream& stream, TpRegion& region);
  Gpt(Gpt&&) noexcept;
  Gpt& operator=(Gpt&&) = delete;
  ~Gpt() override;

  const Stage& stage() const override;
  const ParameterArena& parameters() const override;
  void use_memory(const SharedMemory& memory) override;
  Result<std::unique_ptr<MicroBatch>> new_micro_batch(const ActivationShape& shape,
                                                      kernels::Workspace memory) override;
  Result<std::vector<int32_t>> generate(ParamStore& store, const GenerateOptions& options) override;

  const GptOptions& options() const;
  const ModelConfig& config() const;
  const TensorShard& shard() const;
  kernels::Stream& stream() const;
  TpRegion& region() const;
  const kernels::OpTable& ops() const;

  ModelMemory memory_for(const ActivationShape& shape) const;
  // Allocates the activations. kUnavailable if memory is short.
  Result<GptBatch> make_micro_batch(const ActivationShape& shape);
  // As new_micro_batch().
  Result<GptBatch> make_micro_batch(const ActivationShape& shape, kernels::Workspace memory);

 private:
  explicit Gpt(std::unique_ptr<GptImpl> impl);
  std::unique_ptr<GptImpl> impl_;
};

}  // namespace lockstep::model
