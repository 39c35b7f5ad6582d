#pragma once

#include <cstdint>
#include <vector>

#include "agent/model/make_model.h"
#include "agent/optim/optimizer.h"
#include "agent/parallel/shared_segment.h"
#include "common/api/world_assignment.h"
#include "common/layout/activations.h"
#include "common/layout/mesh.h"
#include "common/layout/model_design.h"
#include "common/layout/sharding.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/matmul.h"

namespace lockstep::parallel {

// The model that one rank trains, its layout and its device. The rank's MemoryPlan and Composition
// follow from it.
struct ComposeOptions {
  ModelDesign design;
  Mesh mesh;
  // The groups of the WorldAssignment; empty: those of the mesh's axes.
  std::vector<WorldGroup> groups = {};
  int64_t micro_batches = 1;  // of a step, on each rank: gradients accumulate over them
  // The size of the micro-batches in training and evaluation.
  int64_t micro_batch = 1;   // samples
  int64_t sequence = 1;      // tokens of a sample; 1 for families without tokens
  int64_t bucket_bytes = 0;  // of gradients that are reduced together
  optim::OptimizerOptions optimizer;
  kernels::Precision precision = kernels::Precision::kF32;
  Recompute recompute = Recompute::kNone;
  ShardingOptions sharding = {};
  OffloadOptions offload = {};
  Exchange exchange = Exchange::kAllReduce;
  // For micro-batches of that size; passes of other sizes use our own kernels. kCudnn needs a GPU
  // that supports it.
  kernels::AttentionBy attention = kernels::AttentionBy::kOwn;
  kernels::Device device;
  SharedSegment::Place shared = {};  // with Exchange::kHost
};

// Returns the rank's model, which is the whole model, with the attention that its device has.
model::ModelOptions model_options(const ComposeOptions& options,
                                  const model::AttentionChoice& attention);
// Returns the shape of its micro-batches.
ActivationShape micro_batch_shape(const ComposeOptions& options, PassMode mode);
// Returns what their batches consist of.
BatchDesign batch_design(const ComposeOptions& options);

}  // namespace lockstep::parallel
