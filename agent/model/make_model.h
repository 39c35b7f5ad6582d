#pragma once

#include <memory>
#include <optional>

#include "agent/model/batch_sums.h"
#include "agent/model/dropout.h"
#include "agent/model/kernel_choice.h"
#include "agent/model/model.h"
#include "agent/model/tp_region.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::model {

struct ModelOptions {
  ModelDesign design;
  Stage stage;  // whole_model(design), or a pipeline stage
  kernels::Precision precision = kernels::Precision::kF32;
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;  // of a transformer: ActivationOptions::splits_rows
  bool splits_backward = false;    // MicroBatch::backward_weights()
  KernelChoice kernels = {};
  DropoutOptions dropout = {};
};

// Makes the model of any family. Call after set_threads(), which workspaces depend on. The stream,
// the ops, the region and the batch's sums (null: those of a rank that has its micro-batches alone)
// outlive the model. kInvalid for a design that validate() refuses, or a stage or shard that the
// family does not support.
Result<std::unique_ptr<Model>> make_model(const ModelOptions& options, const kernels::OpTable& ops,
                                          kernels::Stream& stream, TpRegion& region,
                                          BatchSums* batch = nullptr);

// Computes the memory for a device type, which need not exist here. Pure, except that the CPU's
// result depends on set_threads(). The options' design must pass validate().
ModelMemory model_memory(const ModelOptions& options, const TensorShard& shard,
                         const ActivationShape& shape, kernels::DeviceType device);
// Returns what Model::generate() needs; nothing for families without texts.
GenerateMemory generate_memory(const ModelOptions& options, const TensorShard& shard,
                               kernels::DeviceType device);

// Prepares cuDNN's kernels for the convolutions of the stage in passes of that many samples, and
// adds them to the choice; nothing for a model without convolutions. The first call is for the
// largest number of samples. With fewer, a pass whose kernel needs more workspace keeps our own.
// kUnavailable, with the reason, if the device has no cuDNN.
Status add_convolutions(const ModelOptions& options, int64_t samples, kernels::Device device,
                        ConvolutionChoice& choice);

// Returns the shape of attention in passes of a shard; nothing without attention.
std::optional<kernels::AttentionShape> attention_of(const ModelDesign& design,
                                                    const TensorShard& shard,
                                                    const ActivationShape& shape);

}  // namespace lockstep::model
