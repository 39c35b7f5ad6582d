#pragma once

#include <cstdint>

#include "agent/parallel/compose_options.h"
#include "agent/parallel/memory_plan.h"
#include "agent/train/data/windows.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::train {

// A round's decisions, in addition to the job's spec.
struct RoundSettings {
  Mesh mesh;
  std::vector<WorldGroup> groups = {};  // empty: those of the mesh's axes
  MeshCoordinates place = {};           // of the rank
  StateSharing sharing = {};
  std::string schedule = {};  // WorldLayout
  int64_t ranks_per_node = 1;
  int64_t micro_batch = 1;            // sequences
  int64_t micro_batches = 1;          // of a step, on each rank
  std::vector<int64_t> samples = {};  // parallel::ComposeOptions, as the next one
  int64_t step_samples = 0;
  std::vector<int64_t> first_samples = {};
  kernels::Precision precision = kernels::Precision::kF32;
  kernels::AttentionBy attention = kernels::AttentionBy::kOwn;
  kernels::Conv2dBy convolutions = kernels::Conv2dBy::kOwn;
  kernels::Device device = {};
  parallel::SharedSegment::Place shared = {};  // memory of the node's ranks
  bool keeps_states = false;                   // in memory (spec.checkpoint.memory)
};
// Returns what a rank of the job trains. The worker composes its model from it, and the job's plan
// follows from it. kInvalid for a setting that this version does not know, and where the ranks of a
// node cannot divide the state.
Result<parallel::ComposeOptions> compose_options(const TrainSpec& train,
                                                 const RoundSettings& round);

// Likewise, for a worker of a job with servers: a rank that computes alone, for its share of the
// samples (spec.train.batch, divided by the workers). Without what its Composition needs to reach
// the servers.
Result<parallel::ComposeOptions> served_options(const TrainSpec& train, const BatchShape& batch,
                                                int64_t rank);

// The memory that a job takes, from its spec alone: that of the ranks of the stage that takes the
// most. Within a stage rank 0 does: it imports weights, and with the exchange firstRank it alone
// has the optimizer's states, and on GPUs the gradients that arrive. Otherwise the ranks of a stage
// take the same.
struct JobPlan {
  parallel::ComposeOptions options;
  parallel::MemoryPlan memory;  // of that rank
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  int64_t gpus_per_node = 0;
  // A job with servers: their nodes, with as many processes each as the workers' nodes, and the
  // memory of the process that takes the most.
  int64_t server_nodes = 0;
  std::vector<parallel::MemoryPart> server = {};
  // The job may use cuDNN's attention or convolutions, but this machine cannot tell the workspace
  // that it takes.
  bool lacks_cudnn = false;

  // Ranks that compute on the same GPU; 0 on CPUs.
  int64_t ranks_per_gpu() const {
    return gpus_per_node == 0 ? 0 : (ranks_per_node + gpus_per_node - 1) / gpus_per_node;
  }
  // Whether rank 0 takes more of the arenas than the others.
  bool first_takes_more() const {
    return options.exchange == Exchange::kFirstRank && options.mesh.data > 1;
  }
  // Bytes of a GPU that its ranks take, with what stays free for libraries; 0 on CPUs. This and the
  // next count every rank like this one.
  uint64_t gpu_bytes() const;
  // Bytes of the host that the ranks of a node take, without upper bounds of what is rarely taken.
  uint64_t node_bytes() const;
  // Likewise, of a node of servers; 0 without them.
  uint64_t server_node_bytes() const;
};

// Plans a valid job with spec.train, which trains no click model, for the CPU of this machine or
// for GPUs, which it need not have. Sets the threads of this process (set_threads()) to a rank's,
// as the CPU's plan depends on them. Counts the workspace of cuDNN's attention or convolutions if
// this machine has a GPU that the job may use them on, else that of our own. kInvalid for a job
// that a worker would refuse.
Result<JobPlan> plan_job(const TrainingJobSpec& spec);

}  // namespace lockstep::train
