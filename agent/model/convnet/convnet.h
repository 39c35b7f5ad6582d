#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/model/batch_sums.h"
#include "agent/model/convnet/convnet_layout.h"
#include "agent/model/convolution_choice.h"
#include "agent/model/dropout.h"
#include "agent/model/model.h"
#include "agent/model/tp_region.h"
#include "common/base/result.h"
#include "common/layout/convnet_config.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::model {

struct ConvnetOptions {
  ConvnetConfig config;
  Stage stage;  // whole convnet_pieces()
  kernels::Precision precision = kernels::Precision::kF32;
  bool splits_backward = false;  // ModelOptions::splits_backward
  ConvolutionChoice convolutions = {};
  DropoutOptions dropout = {};  // of what linear layers after others read
};

// Computes the memory for a device type (ModelMemory, model_memory()).
ModelMemory convnet_memory(const ConvnetOptions& options, const ActivationShape& shape,
                           kernels::DeviceType device);

// Adds cuDNN's kernels for the stage's convolutions to the choice (make_model.h).
Status add_convolutions(const ConvnetOptions& options, int64_t samples, kernels::Device device,
                        ConvolutionChoice& choice);

// A convolutional network (ConvnetConfig), or a stage of one. Unit u is block u; the last one also
// has the loss.
//
// Training normalises with the statistics of the micro-batch, evaluation with the running ones.
// Those are parameters with a gradient (Parameter::is_statistic): their distance from the
// statistics of the micro-batch, times the micro-batch's share of the step's samples. So sinks add
// them up over micro-batches and ranks, and every rank gets the same.
class Convnet final : public Model {
 public:
  // The batch's sums outlive the model. kInvalid for a config that validate() refuses, a stage that
  // cuts a residual block, or a shard.
  static Result<std::unique_ptr<Convnet>> create(const ConvnetOptions& options,
                                                 const kernels::OpTable& ops,
                                                 kernels::Stream& stream, const TpRegion& region,
                                                 BatchSums& batch);

  const Stage& stage() const override { return options_.stage; }
  const ParameterArena& parameters() const override { return parameters_; }
  // Has to be called, with what convnet_memory() says.
  void use_memory(const SharedMemory& memory) override { memory_ = memory; }
  Result<std::unique_ptr<MicroBatch>> new_micro_batch(const ActivationShape& shape,
                                                      kernels::Workspace memory) override;
  Result<std::vector<int32_t>> generate(ParamStore& store, const GenerateOptions& options) override;

 private:
  friend class ConvnetBatch;
  Convnet(const ConvnetOptions& options, const kernels::OpTable& ops, kernels::Stream& stream,
          BatchSums& batch);

  ConvnetOptions options_;
  const kernels::OpTable& ops_;
  kernels::Stream& stream_;
  BatchSums& batch_sums_;
  kernels::DType dtype_;  // of activations
  ParameterArena parameters_;
  std::vector<ConvUnit> units_;
  std::vector<int64_t> first_ids_;  // of each unit's parameters
  SharedMemory memory_;
};

class ConvnetBatch final : public MicroBatch {
 public:
  // Model and memory outlive it.
  ConvnetBatch(const Convnet& model, const ActivationShape& capacity, kernels::Workspace memory);

  Status begin(const PassInput& input) override;
  Status forward(int64_t block, std::span<const ParamView> parameters) override;
  // In training, the last unit computes the losses here, since their operation also makes the
  // gradient.
  Status backward(int64_t block, std::span<const ParamView> parameters, GradSink& sink) override;
  // The gradients of the filters.
  Status backward_weights(int64_t block, GradSink& sink) override;
  // [N,H,W,K] of the unit before the stage, and of its last one.
  kernels::View stage_input() const override { return at(layout_.before.pooled); }
  int64_t input_count() const override;
  kernels::View stage_output() const override { return at(places(stage().end - 1).pooled); }
  int64_t output_count() const override;
  kernels::View input_gradient() const override { return gradient(layout_.before.gradient); }
  kernels::View output_gradient() const override {
    return gradient(places(stage().end - 1).gradient);
  }
  int64_t version() const override { return input_.version; }
  // One per sample: the cross-entropy in nats.
  Terms losses() const override;
  Terms hits() const override;
  Terms top_hits() const override;

 private:
  bool trains() const override { return capacity_.mode == PassMode::kTrain; }
  int64_t rows() const { return input_.batch.rows; }
  const ConvUnit& unit(int64_t block) const { return model_.units_[static_cast<size_t>(block)]; }
  const Stage& stage() const { return model_.options_.stage; }
  // Also of the unit before the stage, or of the images.
  const UnitPlaces& places(int64_t block) const {
    return block < stage().begin ? layout_.before
                                 : layout_.units[static_cast<size_t>(block - stage().begin)];
  }
  bool is_last(int64_t block) const { return block + 1 == std::ssize(model_.units_); }
  kernels::View at(int64_t place) const;
  float* f32(int64_t place) const;
  std::byte* scratch(int64_t offset) const;
  kernels::View gradient(int64_t offset) const;
  double* sums() const;
  // Returns the unit's output; for -1 the images.
  kernels::ConstView output_of(int64_t block) const;
  kernels::ConstView weight_of(const ParamView& weight) const;
  kernels::Conv2dShape conv_shape(const ConvUnit& unit) const;
  kernels::Conv2dKernels kernels_of(int64_t block) const {
    return model_.options_.convolutions.of(rows(), block);
  }
  kernels::PoolShape pool_shape(const ConvUnit& unit) const;
  int64_t pixels(const ConvUnit& unit) const;  // of all samples, after the convolution
  Status take_statistics(int64_t block, std::span<const ParamView> parameters);
  Status normalise(int64_t block, std::span<const ParamView> parameters);
  void pool(int64_t block);
  // Drops values of what a linear layer reads, in-place, or their gradients; nothing of what other
  // units read.
  void drop_out(int64_t block, kernels::View values);
  void compute_losses();
  void count_hits(int64_t top, float* hits);
  // Each turns a gradient of what it made into that of what it read.
  kernels::View unpool(int64_t block);
  struct NormGradients {
    kernels::View dy;
    kernels::View dx;  // may be dy
  };
  Status unnormalise(int64_t block, std::span<const ParamView> parameters, GradSink& sink,
                     const NormGradients& gradients);
  void unconvolve(int64_t block, std::span<const ParamView> parameters, GradSink& sink,
                  kernels::View dy);

  const Convnet& model_;
  ActivationShape capacity_;
  ConvnetLayout layout_;
  std::byte* memory_;
  PassInput input_;
};

}  // namespace lockstep::model
