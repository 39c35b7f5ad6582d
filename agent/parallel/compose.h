#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/model/gpt.h"
#include "agent/model/tp_region.h"
#include "agent/optim/adamw_optimizer.h"
#include "agent/optim/clip.h"
#include "agent/parallel/bucketed_sink.h"
#include "agent/parallel/host_transfer.h"
#include "agent/parallel/rank_groups.h"
#include "agent/parallel/replicated_store.h"
#include "agent/parallel/step_scalars.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"
#include "kernels/device/arena.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

struct ComposeOptions {
  ModelConfig config;
  Mesh mesh;
  // The groups of the WorldAssignment; empty: those of the mesh's axes.
  std::vector<WorldGroup> groups = {};
  // The size of the micro-batches in training and evaluation.
  int64_t micro_batch = 1;   // sequences
  int64_t sequence = 0;      // tokens
  int64_t bucket_bytes = 0;  // of gradients that are reduced together
  optim::AdamWOptions optimizer;
  kernels::Precision precision = kernels::Precision::kF32;
  Recompute recompute = Recompute::kNone;
  // For micro-batches of that size; passes of other sizes use our own kernels. kCudnn needs a GPU
  // that supports it.
  kernels::AttentionBy attention = kernels::AttentionBy::kOwn;
  kernels::Device device;
};

// The state of a rank that a checkpoint stores: device memory, each part in the layout of the
// parameters' arena.
struct DeviceState {
  float* parameters = nullptr;
  float* first_moments = nullptr;
  float* second_moments = nullptr;
};

// Micro-batches whose tokens are on the device at a time: one that is trained on, the next one, and
// one that is evaluated.
inline constexpr size_t kTokenSlots = 3;

// Plans all device memory of a rank, even without such a device: everything it allocates to train,
// evaluate and sample, and a reserve for CUDA and cuBLASLt (with several ranks, NCCL's memory comes
// on top). Pure, except that the CPU's plan depends on set_threads(). The options' model must pass
// validate(). Returns plan_arena()'s errors. `attention`: as prepared on a device; by default, our
// own kernels.
Result<kernels::ArenaPlan> plan_memory(const ComposeOptions& options,
                                       const model::AttentionChoice& attention = {});

struct UpdateOptions {
  double learning_rate = 0;
  double clip_norm = 0;
  int64_t step = 1;  // counted from 1
};

// Everything that one rank trains with, built for its place in the mesh and its device. All
// differences between meshes and devices are decided here; the step loop works with any of them.
// All memory is one arena, planned before it is allocated. One thread.
//
// The calls of a step:
// - begin_step()
// - micro-batches through model(), each followed by add_losses(); sink().enable_reduction() before
//   the last one
// - sink().finish()
// - update()
// - sink().wait()
// - scalars(), the only call that waits for the device
class Composition {
 public:
  // The world outlives the composition; it serves memory of the device where there are other ranks.
  // kInvalid for a mesh that this version does not carry out or that is not the world's size,
  // kUnavailable where the device or its memory is not: how much was asked for, by what, and what
  // would fit.
  static Result<std::unique_ptr<Composition>> create(const ComposeOptions& options,
                                                     comm::Communicator& world);
  ~Composition();

  model::Gpt& model() { return *model_; }
  ReplicatedStore& store() { return *store_; }
  BucketedSink& sink() { return *sink_; }
  kernels::Stream& stream() { return stream_; }
  const kernels::OpTable& ops() const { return *ops_; }
  const MeshCoordinates& place() const { return place_; }
  const RankGroups& groups() const { return *groups_; }
  // Returns which part of the program uses which bytes of the device, and what is left to CUDA,
  // cuBLASLt and NCCL.
  const kernels::ArenaPlan& memory() const { return arena_->plan(); }

  // Creates a micro-batch of the options' size in the arena. There is one for training and one for
  // evaluation; a pass of one must end before a pass of the other begins.
  Result<model::MicroBatch> make_micro_batch(PassMode mode);
  // Returns the memory that both share, for other work that runs between their passes.
  kernels::Workspace micro_batch_memory() const;
  // Returns the memory for the tokens and targets of a micro-batch; slot < kTokenSlots. Empty on
  // the CPU.
  kernels::Workspace token_memory(size_t slot) const;

  // Initially zero. After writing to it with transfer(), call broadcast_state().
  DeviceState state();
  // Between the host and the device, on stream().
  HostTransfer& transfer() { return *transfer_; }
  // Draws the parameters of a seed (agent/model/init.h), the same bits on every rank that does so,
  // and makes the copies for products. The moments stay.
  Status initialise(uint64_t seed);
  // The parameters of the first rank of the data axis to the others, after `step` (from 1 on) with
  // the moments. Makes the copies for products as that step has left them.
  Status broadcast_state(int64_t step);

  // Zeroes gradients, losses and norm.
  void begin_step();
  // Zeroes the losses alone.
  void begin_losses() { scalars_->clear(*ops_, stream_); }
  void add_losses(const model::MicroBatch& batch) { scalars_->add_losses(*ops_, stream_, batch); }
  // Updates the parameters with the gradients, clipped; where their norm isn't finite nothing is
  // written.
  void update(const UpdateOptions& options);
  // Waits for all that was issued.
  Result<StepValues> scalars() { return scalars_->read(stream_); }

 private:
  Composition(comm::Communicator& world, const ComposeOptions& options)
      : world_(world), options_(options) {}
  Status build();
  Result<model::AttentionChoice> prepare_attention() const;
  Status build_model();
  Status allocate();
  Status build_parts();

  comm::Communicator& world_;
  ComposeOptions options_;
  model::AttentionChoice attention_;
  MeshCoordinates place_;
  const kernels::OpTable* ops_ = nullptr;
  kernels::Stream stream_;
  kernels::Stream reductions_;  // for reductions of gradients, concurrent with stream_
  model::WholeTensor region_;
  std::optional<RankGroups> groups_;
  comm::Communicator* data_group_ = nullptr;  // of groups_
  std::optional<kernels::Arena> arena_;
  std::optional<model::Gpt> model_;
  std::optional<ReplicatedStore> store_;
  std::optional<BucketedSink> sink_;
  std::optional<optim::AdamWOptimizer> optimizer_;
  std::optional<optim::GradientNorm> norm_;
  std::optional<StepScalars> scalars_;
  std::optional<HostTransfer> transfer_;
};

}  // namespace lockstep::parallel
