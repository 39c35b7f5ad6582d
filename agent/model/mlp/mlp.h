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
  Stage stage;  // all layers
  kernels::Precision precision = kernels::Precision::kF32;
  DropoutOptions dropout = {};  // of the hidden layers' outputs
};

// Computes the memory for a device type (ModelMemory, model_memory()).
ModelMemory mlp_memory(const MlpOptions& options, const ActivationShape& shape,
                       kernels::DeviceType device);

// A multi-layer perceptron (MlpConfig). Layer l is block l; the last one also has the loss.
class Mlp final : public Model {
 public:
  // kInvalid for a config that validate() refuses, a part of the layers, or a shard of them.
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
  int64_t version() const override { return input_.version; }
  // One per sample: the cross-entropy in nats, or the sum of the squared errors of its values.
  Terms losses() const override { return {f32(layout_.losses), rows()}; }
  Terms hits() const override;

 private:
  const MlpConfig& config() const { return model_.options_.config; }
  bool trains() const override { return capacity_.mode == PassMode::kTrain; }
  bool is_last(int64_t layer) const { return layer + 1 == config().layers(); }
  bool has_gelu() const { return config().activation == MlpActivation::kGelu; }
  kernels::Pointwise pointwise() const;
  int64_t rows() const { return input_.batch.rows; }
  kernels::View at(int64_t place) const;
  kernels::View gradient_of(int64_t layer) const;
  float* f32(int64_t place) const;
  // Returns what a layer reads, and what it writes.
  kernels::ConstView input_of(int64_t layer) const;
  kernels::View output_of(int64_t layer) const;
  void compute_losses();
  void apply_activation(int64_t layer);
  // Turns the gradient of a hidden layer's values into that of the activation's inputs.
  void unapply_activation(int64_t layer);
  void drop_out(int64_t layer, kernels::View values);
  void unscale_output(int64_t layer);

  const Mlp& model_;
  ActivationShape capacity_;
  MlpLayout layout_;
  std::byte* memory_;
  PassInput input_;
};

}  // namespace lockstep::model
