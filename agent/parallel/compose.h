#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/model/model.h"
#include "agent/model/tp_region.h"
#include "agent/optim/optimizer.h"
#include "agent/parallel/batch_feed.h"
#include "agent/parallel/compose_options.h"
#include "agent/parallel/gradient_exchange.h"
#include "agent/parallel/host_transfer.h"
#include "agent/parallel/late_totals.h"
#include "agent/parallel/memory_plan.h"
#include "agent/parallel/offload/far_memory.h"
#include "agent/parallel/parameter_casts.h"
#include "agent/parallel/pipeline_relay.h"
#include "agent/parallel/rank_groups.h"
#include "agent/parallel/rank_store.h"
#include "agent/parallel/replicated_store.h"
#include "agent/parallel/schedule_executor.h"
#include "agent/parallel/shared_batch.h"
#include "agent/parallel/snapshot.h"
#include "agent/parallel/state_stream.h"
#include "agent/parallel/step_actions.h"
#include "agent/parallel/step_scalars.h"
#include "agent/parallel/step_timer.h"
#include "agent/parallel/tensor_region.h"
#include "agent/parallel/timeline_recorder.h"
#include "common/api/step_numbers.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"
#include "kernels/device/arena.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// A rank's state in device memory, for digests and tests, without sharding; each part has the
// layout of the parameters' arena. Checkpoints use snapshots.
struct DeviceState {
  const ParameterArena* arena = nullptr;
  float* parameters = nullptr;
  std::vector<optim::OptimizerState> optimizer = {};
};

struct StepRequest {
  int64_t step = 1;          // counted from 1
  int64_t first_update = 1;  // as in optim::OptimizerStep
  double learning_rate = 0;
  // The next step, this one or a later one, after which the pipeline is to be empty: for a
  // checkpoint or an evaluation. The same on all ranks and until it is reached. 0: this one. Read
  // only if steps overlap (PipeDream).
  int64_t flush = 0;
  double clip_norm = 0;                  // of the gradients; 0: no limit
  bool stop = false;                     // this rank was asked to stop
  bool busy = false;                     // this rank is still writing its part of a checkpoint
  TimelineRecorder* timeline = nullptr;  // gets what this rank does, and when; null: nothing does
  // Called before the first change of the state (Composition::copy_share()). Its error ends the
  // step.
  std::function<Status()> before_update = {};
};

struct StepReport {
  // Loss, gradient norm and seconds by part. The loss is the mean over what counts in the global
  // batch (BatchDesign::counted). It and the norm are the same bits on every rank.
  StepNumbers numbers;
  // The step that loss, norm and `busy` are of. If steps overlap, stages after the first one learn
  // them later: then it is an earlier step, or -1, without loss and norm and with `busy`.
  int64_t known_step = -1;
  bool stop = false;  // some rank was asked to stop: all learn it at the same step
  bool busy = true;   // some rank was busy when the step began; the same on all ranks
};

// The results of an evaluation, the same bits on every rank.
struct Evaluation {
  double loss = 0;                           // mean over what counts
  std::optional<double> accuracy = {};       // right answers / what counts, if the task has answers
  std::optional<double> top5_accuracy = {};  // those among the five most likely, likewise
};

// Everything that one rank trains with, built for its place in the mesh and its device. All
// differences between meshes and devices are decided here; the step loop works with any of them.
// All memory is two arenas, one on the device and one of page-locked memory, planned before they
// are allocated (memory_plan.h). One thread.
class Composition {
 public:
  // World and clock outlive the composition; the world serves memory of the device where there are
  // other ranks. kInvalid for a mesh that this version does not carry out or that is not the
  // world's size, kUnavailable where the device or its memory is not: how much was asked for, by
  // what, and what would fit.
  static Result<std::unique_ptr<Composition>> create(const ComposeOptions& options,
                                                     comm::Communicator& world, const Clock& clock);
  ~Composition();

  // One optimizer step: data, forward, backward, reductions and update, as the schedule orders
  // them. If steps overlap, forwards of later steps are part of it, and it ends when this rank has
  // made its update. Checkpoints, evaluations and samples need an empty pipeline
  // (StepRequest::flush, or a report that says to stop). On a GPU the host issues the step and
  // waits once, at its end (where gradients go by way of host memory also for the last of them);
  // the parts' times are the device's (step_timer.h). If the loss or the norm is not finite the
  // report says so; with such a norm nothing is updated. If steps overlap, each stage goes by its
  // own norm, and a clip_norm is kInvalid.
  Result<StepReport> run_step(BatchFeed& feed, const StepRequest& request);
  // Evaluates all samples of all ranks' feeds. Nothing if `stop_requested` returned true on some
  // rank before one of its batches.
  Result<std::optional<Evaluation>> evaluate(BatchFeed& feed,
                                             const std::function<bool()>& stop_requested);
  // Whether this rank needs others wherever it computes, because they have the rest of the
  // parameters.
  bool computes_together() const {
    return gathers_parameters() || options_.mesh.tensor * options_.mesh.pipeline > 1;
  }

  // Continues a text (Model::generate()), in memory of the arenas. All ranks call it. Those with
  // data coordinate 0 get the text. The others take part if they compute together; otherwise they
  // return at once.
  Result<std::optional<std::vector<int32_t>>> generate(model::GenerateOptions options);

  kernels::Stream& stream() { return stream_; }
  const MeshCoordinates& place() const { return options_.place; }
  // Returns what this rank has allocated, and what it leaves to CUDA, cuBLASLt and NCCL.
  const MemoryPlan& memory() const { return memory_; }
  size_t buckets() const { return exchange_->buckets().size(); }
  // Bytes that passed through memory that the ranks of a node share, and through far memory.
  GradientExchange::SharedTraffic shared_traffic() const { return exchange_->shared_traffic(); }
  OffloadCounts offload_counts() const { return exchange_->offload_counts(); }
  // Waits for collectives that go on after a step. Returns the first error.
  Status settle() { return store_->settle(); }
  // Whether this rank has all parameters of its stage, as state() says.
  bool has_all_parameters() const { return options_.sharding.sharding != Sharding::kParameters; }
  // Returns the memory for the tensors of a micro-batch; slot < kBatchSlots. Empty on the CPU.
  BatchMemory batch_memory(size_t slot) const;
  // Returns what micro-batches consist of.
  const BatchDesign& batch_design() const { return batch_design_; }

  // Initially zero. After writing to it with transfer(), call broadcast_state().
  DeviceState state();
  // Returns the bf16 copies that products read, in the same layout; null with fp32.
  const kernels::Bf16* copies() const;
  // Between the host and the device, on stream().
  HostTransfer& transfer() { return *transfer_; }
  // With Exchange::kServers: takes over the parameters that the servers have for the step after
  // this one. Blocks.
  Status pull_parameters(int64_t step);
  // Draws the parameters of a seed (agent/model/init.h), the same bits on every rank that does so,
  // and makes the copies for products. The optimizer's states stay. With sharding, all ranks of a
  // group call it.
  Status initialise(uint64_t seed);
  // Takes the parameters from the source and makes the copies for products. All ranks call it; only
  // rank 0 of the world has a source.
  Status load_parameters(StateSource* source);
  // The state of the first replicas (StateLayout) to the others: the parameters and, from step 1
  // on, the optimizer's states. Makes the copies for products as that step has left them.
  Status broadcast_state(int64_t step);

  // Each rank saves and loads a share of the state that it holds: the ranks that hold the same
  // values divide them. All shares together are the whole state.
  //
  // Allocates the memory for copies of this rank's share.
  void reserve_snapshot();
  // Copies this rank's share to the host; after reserve_snapshot(), between two steps. The values
  // stay as they are until the next call, while other threads read them.
  Status take_snapshot();
  // Returns the part of the copy that this rank saves: without what ranks of other stages or shards
  // also hold and save.
  StateShare snapshot() const;
  // Returns how many values this rank's share has, of all kinds together.
  uint64_t share_values() const;
  // Copies this rank's share to host memory for as many values. The state changes only in updates:
  // another thread may make the call from the end of one step on, if it is over when the next one
  // calls StepRequest::before_update, while this thread runs a step, evaluates, takes a snapshot or
  // settles. Needs ComposeOptions::copies_share. Errors are the device's.
  Status copy_share(std::span<float> to);
  // Sets this rank's share to the values of copy_share(). Call exchange_shares() afterwards.
  Status restore_share(std::span<const float> from);
  // A layout in which the ranks of another world share the same model: with as many data-parallel
  // ranks, of which as many divide the state. The rest of the mesh is this one's.
  struct OtherLayout {
    int64_t data = 1;
    int64_t shard_ranks = 1;

    bool operator==(const OtherLayout&) const = default;
  };
  OtherLayout layout() const { return {options_.mesh.data, options_.sharding.ranks}; }
  // Returns how many ranks such a world has.
  int64_t ranks_of(const OtherLayout& layout) const {
    return options_.mesh.pipeline * layout.data * options_.mesh.tensor;
  }
  // The share of a rank of another world, as copy_share() makes it, cut into this rank's memory.
  // Every rank fills all that it holds from the shares of all ranks of that world. Then it calls
  // shares_taken(), as all ranks do, which makes the copies for products.
  class ForeignShare {
   public:
    uint64_t values() const { return values_; }

   private:
    friend class Composition;
    // Values of the share, from `at` on, that are consecutive in a tensor.
    struct Run {
      uint64_t at = 0;
      int64_t count = 0;
      size_t kind = 0;
      int64_t id = 0;      // of the parameter
      int64_t global = 0;  // where they are in the tensor
    };
    uint64_t values_ = 0;
    std::vector<Run> runs_;  // ascending in `at`
  };
  ForeignShare foreign_share(const OtherLayout& layout, int64_t rank);
  // Returns whether this rank holds any of the share's `count` values from `first` on.
  bool holds_any(const ForeignShare& share, uint64_t first, uint64_t count) const {
    return !held_parts(share, first, count).empty();
  }
  // Takes what this rank holds of a part of the share, from its value `first` on.
  Status take(const ForeignShare& share, uint64_t first, std::span<const float> part);
  Status shares_taken(int64_t step) { return parameters_written(step); }
  // Fills this rank's share of the state after a step (of step 1 or later) from the source, in
  // ascending order of places in the arena. Sends nothing.
  Status read_share(StateSource& source);
  // Sets this rank's share to zero, as it was at first.
  Status clear_share();
  // Gives all shares to the ranks that hold the same values, and makes the copies for products as
  // `step` has left them. All ranks call it.
  Status exchange_shares(int64_t step);

  // The names of the optimizer's states, in the order of StateTensor::kind from 1 on.
  std::vector<std::string> optimizer_states() const;

 private:
  // Values of a part of a foreign share that this rank holds.
  struct HeldPart {
    uint64_t at = 0;  // in the part
    size_t kind = 0;
    int64_t local = 0;  // in this rank's shard
    int64_t count = 0;
  };
  std::vector<HeldPart> held_parts(const ForeignShare& share, uint64_t first, uint64_t count) const;
  Composition(comm::Communicator& world, const ComposeOptions& options)
      : world_(world),
        options_(options),
        batch_design_(lockstep::parallel::batch_design(options)) {}
  Status build(const Clock& clock);
  Result<model::AttentionChoice> prepare_attention() const;
  Status prepare_kernels();
  Status build_region();
  Status build_shared_batch();
  Status build_models();
  Status allocate();
  Status build_groups();
  Status build_matrix_group();
  Status meet_matrix_group();
  Status build_far_memory();
  Status build_store();
  Status build_gathered_store();
  ReplicatedStoreOptions replica() const;
  // A store of all parameters of the rank, with the versions that its schedule needs.
  std::unique_ptr<RankStore> make_replica();
  // Counts the host's waits within a pass as communication; empty on a GPU.
  std::function<void(model::Pass pass, bool begins)> waits_lapped();
  std::function<void(bool begins)> backward_waits_lapped();
  std::function<void(bool begins)> update_waits_lapped();  // empty on a GPU, too
  struct StateArrays {
    std::array<float*, optim::kStatesMax> states{};
    FarArrays far;
    PieceMemory pieces;
  };
  StateArrays state_arrays() const;
  Status build_exchange(const Clock& clock);
  Status build_sharded_exchange(const ExchangeParts& parts, const Clock& clock);
  Status build_tensor_sums();
  std::vector<int64_t> first_samples() const;
  Status build_executor();
  Status build_totals();
  // Returns how many terms of the loss this rank has in a step.
  int64_t counted_per_step() const {
    const std::vector<int64_t>& samples = options_.samples;
    const int64_t mine = samples.empty()
                             ? options_.micro_batch * options_.micro_batches
                             : std::accumulate(samples.begin(), samples.end(), int64_t{0});
    return mine * batch_design_.counted;
  }
  Status build_links();
  // Adds up the gradients of a tied embedding that another stage has, too.
  Status tie_stages();
  Result<std::vector<ScheduleExecutor::Chunk>> make_chunks();
  Status add_results_of(const DeviceBatch& batch);
  StateStream state_stream();
  const ShardLayout& shards() const { return state_layout_->shards(world_.rank()); }
  // Returns the part of this rank's shard that a replica saves and loads.
  StateLayout::ShardRange share_of(int64_t replica) const;
  // The memory of the state: the parameters', then that of the optimizer's states.
  HeldState held_state() { return held_state(*transfer_); }
  HeldState held_state(HostTransfer& transfer) const;
  StateLayout::ShardRange my_share() const {
    return share_of(state_layout_->replica(world_.rank()));
  }
  // Sends a part of the shard from one replica to the others.
  Status replicate(size_t kind, const StateLayout::ShardRange& range, int root);
  // Makes what depends on parameters that were loaded or received.
  Status parameters_written(int64_t step);
  // Returns whether a chunk has the first or the last block of the model.
  bool is_first(const Stage& chunk) const { return chunk.begin == 0; }
  bool is_last(const Stage& chunk) const { return chunk.end == block_count(options_.design); }
  // Runs one batch of an evaluation; nothing if this rank has none, while others do.
  Status evaluate_one(const std::optional<DeviceBatch>& batch);
  float* parameters() const;
  model::TpRegion& region() {
    return shared_tensors_ ? static_cast<model::TpRegion&>(*shared_tensors_) : whole_tensors_;
  }
  bool gathers_parameters() const { return !has_all_parameters() && shards().ranks() > 1; }
  // Waits for everything that was issued to streams behind collectives.
  Status wait_for_streams();
  // Ends a step whose share of the totals is `mine`.
  Result<StepReport> end_step(int64_t step, const RankTotals& mine);
  kernels::Workspace memory_of(DevicePart part) const {
    return arena_->workspace(static_cast<size_t>(part));
  }
  kernels::Workspace memory_of(PinnedPart part) const {
    return pinned_->workspace(static_cast<size_t>(part));
  }
  float* floats_of(DevicePart part) const { return static_cast<float*>(memory_of(part).data); }
  kernels::Bf16* bf16_of(DevicePart part) const {
    return static_cast<kernels::Bf16*>(memory_of(part).data);
  }

  comm::Communicator& world_;
  ComposeOptions options_;
  const BatchDesign batch_design_;
  model::KernelChoice kernels_;
  const kernels::OpTable* ops_ = nullptr;
  kernels::Stream stream_;
  kernels::Stream reductions_;  // for reductions of gradients, concurrent with stream_
  // Communicates with the ranks that share the tensors with this one; null: there are none.
  std::unique_ptr<TensorRegion> shared_tensors_;
  model::WholeTensor whole_tensors_;
  // Adds up statistics with the ranks that share micro-batches with this one; null: there are none.
  std::unique_ptr<SharedBatch> shared_batch_;
  std::optional<RankGroups> groups_;
  comm::Communicator* data_group_ = nullptr;  // of groups_
  MemoryPlan memory_;
  std::optional<kernels::Arena> arena_;
  std::optional<kernels::Arena> pinned_;
  std::vector<std::unique_ptr<model::Model>> models_;  // by chunk of this rank
  // The ranks of data_group_ with the other shards, twice: gradients and parameters travel
  // concurrently. Null without sharding.
  std::unique_ptr<comm::Communicator> reducing_;
  std::unique_ptr<comm::Communicator> gathering_;
  std::unique_ptr<comm::Communicator> other_replicas_;  // null: those of data_group_
  comm::Communicator* replicas_ = nullptr;              // with the same shard as this rank
  optim::MuonRanks muon_ranks_;                         // only with kMuon, as matrix_group_
  std::unique_ptr<comm::Communicator> matrix_group_;    // muon_ranks_; null: this rank is alone
  kernels::Stream gathers_;                             // for parameters, like reductions_
  std::array<FarMemory, optim::kStatesMax> far_states_;
  FarMemory far_parameters_;
  std::optional<ParameterCasts> casts_;  // if products read bf16 copies
  std::unique_ptr<RankStore> store_;
  std::unique_ptr<GradientExchange> exchange_;
  std::optional<StepScalars> scalars_;
  std::optional<StateLayout> state_layout_;
  std::optional<HostTransfer> transfer_;
  std::optional<Snapshot> snapshot_;
  std::optional<std::pair<OtherLayout, StateLayout>> other_layout_;  // of foreign_share()
  kernels::Stream copies_stream_;              // with copies_share, as the next one
  std::optional<HostTransfer> copy_transfer_;  // for the thread that calls copy_share()
  std::unique_ptr<StepTimer> timer_;
  StageLinks links_;                    // with the neighbours of a pipeline
  std::optional<PipelineRelay> relay_;  // of evaluations, in a pipeline
  std::unique_ptr<StepActions> actions_;
  std::optional<ScheduleExecutor> executor_;
  std::unique_ptr<comm::Communicator> totals_group_;  // if steps overlap: nothing else uses it
  std::optional<LateTotals> totals_;                  // of steps
  bool stops_ = false;  // some rank was asked to stop, and the pipeline is not empty yet
  ScheduleExecutor::MicroBatches evaluated_;  // the one that evaluates, by chunk
};

}  // namespace lockstep::parallel
