#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/model/dropout.h"
#include "agent/model/mlp/mlp_layout.h"
#include "agent/model/model.h"
#include "agent/model/tp_region.h"
#include "common/base/result.h"
#include "common/layout/mlp_config.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::model {

struct MlpOptions {
  MlpConfig config;
  Stage stage;
  kernels::Precision precision = kernels::Precision::kF32;
  bool splits_backward = false;  // ModelOptions::splits_backward
  DropoutOptions dropout = {};   // of the hidden layers' outputs
};

// Computes the memory for a device type (ModelMemory, model_memory()).
ModelMemory mlp_memory(const MlpOptions& options, const ActivationShape& shape,
                       kernels::DeviceType device);

// A multi-layer perceptron (MlpConfig), or a stage of one. Layer l is block l; the last one also
// has the loss. A stage sends what follows its last layer's activation and dropout.
class Mlp final : public Model {
 public:
  // kInvalid for a config that validate() refuses, or a shard of the layers.
  static Result<std::unique_ptr<Mlp>> create(const MlpOptions& options, const kernels::OpTable& ops,
                                             kernels::Stream& stream, const TpRegion& region);

  const Stage& stage() const override { return options_.stage; }
  const ParameterArena& parameters() const override { return parameters_; }
  // Has to be called, with what mlp_memory() says.
  void use_memory(const SharedMemory& memory) override { memory_ = memory; }
  Result<std::unique_ptr<MicroBatch>> new_micro_batch(const ActivationShape& shape,
                                                      kernels::Workspace memory) override;
  Result<std::vector<int32_t>> generate(ParamStore& store, const GenerateOptions& options) override;

 private:
  friend class MlpBatch;
  Mlp(const MlpOptions& options, const kernels::OpTable& ops, kernels::Stream& stream);

  MlpOptions options_;
  const kernels::OpTable& ops_;
  kernels::Stream& stream_;
  kernels::DType dtype_;  // of activations
  ParameterArena parameters_;
  SharedMemory memory_;
};

class MlpBatch final : public MicroBatch {
 public:
  // Model and memory outlive it.
  MlpBatch(const Mlp& model, const ActivationShape& capacity, kernels::Workspace memory);

  Status begin(const PassInput& input) override;
  Status forward(int64_t layer, std::span<const ParamView> parameters) override;
  // In training, the last layer computes the losses here, since their operation also makes the
  // gradient.
  Status backward(int64_t layer, std::span<const ParamView> parameters, GradSink& sink) override;
  Status backward_weights(int64_t layer, GradSink& sink) override;
  kernels::View stage_input() const override { return at(layout_.input); }
  int64_t input_count() const override;
  kernels::View stage_output() const override { return output_of(stage().end - 1); }
  int64_t output_count() const override;
  kernels::View input_gradient() const override { return scratch_gradient(stage().begin - 1); }
  kernels::View output_gradient() const override { return gradient_of(stage().end - 1); }
  int64_t version() const override { return input_.version; }
  // One per sample: the cross-entropy in nats, or the sum of the squared errors of its values.
  Terms losses() const override;
  Terms hits() const override;

 private:
  const MlpConfig& config() const { return model_.options_.config; }
  bool trains() const override { return capacity_.mode == PassMode::kTrain; }
  const Stage& stage() const { return model_.options_.stage; }
  // Returns the layer's index in the vectors of the layout.
  size_t place_of(int64_t layer) const { return static_cast<size_t>(layer - stage().begin); }
  bool is_last(int64_t layer) const { return layer + 1 == config().layers(); }
  bool has_gelu() const { return config().activation == MlpActivation::kGelu; }
  kernels::Pointwise pointwise() const;
  int64_t rows() const { return input_.batch.rows; }
  kernels::View at(int64_t place) const;
  // The gradient of a hidden layer, or of the one before the stage: of its values, then of the
  // activation's inputs.
  kernels::View gradient_of(int64_t layer) const;
  kernels::View scratch_gradient(int64_t layer) const;
  float* f32(int64_t place) const;
  // Returns what a layer reads, and what it writes.
  kernels::ConstView input_of(int64_t layer) const;
  kernels::View output_of(int64_t layer) const;
  void compute_losses();
  void apply_activation(int64_t layer);
  // Turns the gradient of a hidden layer's values into that of the activation's inputs.
  void unapply_activation(int64_t layer);
  void unapply_gelu(int64_t layer);
  // The gradients of a layer's product.
  void unapply_output(int64_t layer);
  void unmultiply(int64_t layer, std::span<const ParamView> parameters, GradSink& sink);
  void drop_out(int64_t layer, kernels::View values);
  kernels::ConstView undropped_output(int64_t layer);

  const Mlp& model_;
  ActivationShape capacity_;
  MlpLayout layout_;
  std::byte* memory_;
  PassInput input_;
};

}  // namespace lockstep::model
