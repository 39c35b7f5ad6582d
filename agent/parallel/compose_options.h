#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "agent/model/make_model.h"
#include "agent/optim/optimizer.h"
#include "agent/parallel/remote_parameters.h"
#include "agent/parallel/shared_segment.h"
#include "common/api/world_assignment.h"
#include "common/base/result.h"
#include "common/layout/activations.h"
#include "common/layout/mesh.h"
#include "common/layout/model_design.h"
#include "common/layout/pipeline_schedule.h"
#include "common/layout/sharding.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv2d.h"
#include "kernels/ops/matmul.h"

namespace lockstep::parallel {

// The model that one rank trains, its layout and its device. The rank's MemoryPlan and Composition
// follow from it.
struct ComposeOptions {
  ModelDesign design;
  Mesh mesh;
  MeshCoordinates place = {};                                    // of the rank
  PipelineKind pipeline = PipelineKind::kOneForwardOneBackward;  // with several stages
  VersionRules versions = {};                                    // with kPipeDream
  // The groups of the WorldAssignment; empty: those of the mesh's axes.
  std::vector<WorldGroup> groups = {};
  int64_t micro_batches = 1;  // of a step, on each rank: gradients accumulate over them
  // The size of the micro-batches in training and evaluation.
  int64_t micro_batch = 1;  // samples
  // The sizes of the micro-batches that train: at most micro_batch, the same on the stages of a
  // data rank; empty: all have micro_batch.
  std::vector<int64_t> samples = {};
  int64_t step_samples = 0;  // of a step, on all ranks; with `samples`
  // Samples of a step whose gradients count: gradients are those of their mean loss; with
  // `samples`. 0: all of them.
  int64_t counted_samples = 0;
  // For dropout, with `samples`: the places of each micro-batch's first sample among those of a
  // step.
  std::vector<int64_t> first_samples = {};
  int64_t sequence = 1;      // tokens of a sample; 1 for families without tokens
  int64_t bucket_bytes = 0;  // of gradients that are reduced together
  optim::OptimizerOptions optimizer;
  kernels::Precision precision = kernels::Precision::kF32;
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;  // ActivationOptions::splits_rows
  model::DropoutOptions dropout = {};
  // The type of messages between stages; none: that of activations.
  std::optional<kernels::DType> transfer = {};
  ShardingOptions sharding = {};
  OffloadOptions offload = {};
  Exchange exchange = Exchange::kAllReduce;
  // For micro-batches of that size; passes of other sizes use our own kernels. kCudnn needs a GPU
  // that supports it.
  kernels::AttentionBy attention = kernels::AttentionBy::kOwn;
  // kCudnn: each pass of a convolution that cuDNN supports. Needs a GPU with cuDNN.
  kernels::Conv2dBy convolutions = kernels::Conv2dBy::kOwn;
  kernels::Device device;
  SharedSegment::Place shared = {};    // with Exchange::kHost
  RemoteParameters* remote = nullptr;  // with Exchange::kServers; outlives the composition
  bool copies_share = false;           // Composition::copy_share() will be called
  // Called with each micro-batch of a step whose forward or backward begins, and with -1 once there
  // is none left. Must be quick.
  std::function<void(int64_t micro_batch)> observe_micro_batch = {};
};

// Refuses what this version does not carry out. Jobs are checked before (common/api/rules.h).
Status check(const ComposeOptions& options);
// Whether offloaded values are in a scratch file, not in page-locked memory.
bool offloads_to_file(const ComposeOptions& options);
// Returns how the micro-batches of a step pass through the stages.
PipelineShape pipeline_shape(const ComposeOptions& options);
// Returns how many micro-batches the rank keeps between forward and backward, by chunk.
std::vector<int64_t> micro_batches_in_flight(const ComposeOptions& options);
// Returns whether the last stage of the pipeline also sends to the first one (kInterleaved).
bool is_ring(const ComposeOptions& options);
// Returns the channels of the rank's stage: two for each neighbour.
uint64_t channel_count(const ComposeOptions& options);
// Returns the type of messages between stages.
kernels::DType transfer_dtype(const ComposeOptions& options);
// Returns the values of a message from the stage before a block to that of the block; 0 at the ends
// of the model.
int64_t edge_count(const ComposeOptions& options, int64_t block);
// Returns the most values of a message that the rank sends or receives; 0 without a pipeline.
int64_t largest_edge(const ComposeOptions& options);
// Returns the rank's chunks of the model, its part of their tensors, and the arena of its
// parameters.
std::vector<Stage> chunks_of(const ComposeOptions& options);
TensorShard shard_of(const ComposeOptions& options);
ParameterArena arena_of(const ComposeOptions& options);
// Returns how many values a rank keeps of versions of its parameters before the latest one.
int64_t stashed_values(const ComposeOptions& options);
// Returns whether the gradients of parameters are computed apart (MicroBatch::backward_weights()).
bool splits_backward(const ComposeOptions& options);
// Returns whether data-parallel ranks add up statistics of their micro-batches (model::BatchSums).
bool adds_up_batches(const ComposeOptions& options);
// Returns whether stages update at different times, and steps overlap.
bool steps_overlap(const ComposeOptions& options);
// Returns the model of one of the rank's chunks, with the kernels that its device has.
model::ModelOptions model_options(const ComposeOptions& options, const Stage& chunk,
                                  const model::KernelChoice& kernels);
// Prepares cuDNN's kernels for the rank's convolutions, in micro-batches of all sizes that it
// trains on. kUnavailable, with the reason, for a model without any or a device without cuDNN.
Result<model::ConvolutionChoice> prepare_convolutions(const ComposeOptions& options);
// Returns the shape of its micro-batches.
ActivationShape micro_batch_shape(const ComposeOptions& options, PassMode mode);
// Returns the shape of attention in training; nothing without attention.
std::optional<kernels::AttentionShape> attention_of(const ComposeOptions& options);
// Returns what their batches consist of.
BatchDesign batch_design(const ComposeOptions& options);

}  // namespace lockstep::parallel
