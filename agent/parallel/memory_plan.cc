#include "agent/parallel/memory_plan.h"

#include <algorithm>
#include <span>

#include "agent/comm/gpu/nccl_backend.h"
#include "agent/comm/make_communicator.h"
#include "agent/parallel/exchange_memory.h"
#include "agent/parallel/host_transfer.h"
#include "agent/parallel/offload/piece_stream.h"
#include "agent/parallel/shard/shard_memory.h"
#include "agent/parallel/staging_memory.h"
#include "agent/parallel/step_scalars.h"
#include "common/layout/state_layout.h"

namespace lockstep::parallel {
namespace {

// GPU memory outside the arena that CUDA and cuBLASLt reserve when operations first run. CUDA loads
// the code of kernels with their first launch. It also reserves local memory: a thread's stack (1
// KiB by cudaLimitStackSize) on every multiprocessor, 264 MiB for the 132 x 2048 threads of an
// H200. An estimate, not measured.
constexpr uint64_t kCudaReserveBytes = uint64_t{512} << 20;

size_t aligned(size_t bytes) {
  constexpr size_t kAlign = 256;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

bool is_cpu(const ComposeOptions& options) {
  return options.device.type == kernels::DeviceType::kCpu;
}

// The activations of a micro-batch that trains on a chunk.
size_t exact_bytes(const ComposeOptions& options, const Stage& chunk,
                   const model::KernelChoice& kernels) {
  return model::model_memory(model_options(options, chunk, kernels), shard_of(options),
                             micro_batch_shape(options, PassMode::kTrain), options.device.type)
      .activations;
}

// Whether one micro-batch has been through backward before the next one begins.
bool keeps_one(const ComposeOptions& options) {
  return options.mesh.virtual_stages == 1 && data_places(options) == 1;
}

// The activations of the micro-batches in flight.
size_t trained_bytes(const ComposeOptions& options, const model::KernelChoice& kernels) {
  const std::vector<Stage> chunks = chunks_of(options);
  const std::vector<int64_t> in_flight = micro_batches_in_flight(options);
  if (keeps_one(options)) return exact_bytes(options, chunks[0], kernels);
  size_t bytes = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    bytes += activation_bytes(options, chunks[i], kernels) * static_cast<size_t>(in_flight[i]);
  }
  return bytes;
}

// A micro-batch that trains on each chunk, one that evaluates and a text that is sampled take turns
// in the same memory.
model::ModelMemory model_memory(const ComposeOptions& options, const model::KernelChoice& kernels) {
  const kernels::DeviceType device = options.device.type;
  const TensorShard shard = shard_of(options);
  const auto raise = [](size_t& most, size_t bytes) { most = std::max(most, bytes); };
  model::ModelMemory memory{.activations = trained_bytes(options, kernels)};
  for (const Stage& chunk : chunks_of(options)) {
    const model::ModelOptions model = model_options(options, chunk, kernels);
    const model::ModelMemory training =
        model::model_memory(model, shard, micro_batch_shape(options, PassMode::kTrain), device);
    const model::ModelMemory evaluating =
        model::model_memory(model, shard, micro_batch_shape(options, PassMode::kEvaluate), device);
    raise(memory.activations, evaluating.activations);
    raise(memory.activations, model::generate_memory(model, shard, device).device);
    raise(memory.workspace, std::max(training.workspace, evaluating.workspace));
    raise(memory.scratch, training.scratch);
    raise(memory.gathered, training.gathered);
    raise(memory.tables, training.tables);
    raise(memory.logits_bytes, training.logits_bytes);
    memory.logits_rows = std::max(memory.logits_rows, training.logits_rows);
  }
  return memory;
}

// The CPU reads the tensors of a micro-batch where the loader has put them.
void add_batches(const ComposeOptions& options, std::vector<kernels::ArenaRequest>& requests) {
  const BatchDesign batch = batch_design(options);
  std::string names;
  for (const BatchTensor& tensor : batch.tensors) {
    names += (names.empty() ? "" : " and ") + std::string(tensor.name);
  }
  const auto bytes =
      is_cpu(options) ? uint64_t{0} : static_cast<uint64_t>(batch.bytes(options.micro_batch));
  for (size_t slot = 0; slot < kBatchSlots; ++slot) {
    requests.push_back({kernels::ArenaUse::kWorkspace, names, bytes});
  }
}

// The optimizer's states in the order of their kinds; without one its place is empty.
void add_states(const ComposeOptions& options, uint64_t bytes,
                std::vector<kernels::ArenaRequest>& requests) {
  const std::span<const optim::StateKind> kinds = optim::state_kinds(options.optimizer);
  for (size_t i = 0; i < optim::kStatesMax; ++i) {
    const bool is_kept = i < kinds.size();
    requests.push_back(
        {kernels::ArenaUse::kOptimizer, is_kept ? kinds[i].meaning : "", is_kept ? bytes : 0});
  }
}

uint64_t bf16_bytes(int64_t count) {
  return static_cast<uint64_t>(count) * sizeof(kernels::Bf16);
}

// Returns the size of one of the two buffers through which offloaded values pass.
uint64_t offload_buffer_bytes(const ComposeOptions& options, const ShardMemory& memory) {
  const size_t states = memory.far_states > 0 ? optim::state_kinds(options.optimizer).size() : 0;
  const size_t arrays = states + (memory.far_parameters > 0 ? 1 : 0);
  if (arrays == 0) return 0;
  return piece_buffer_bytes(arrays, std::max(memory.far_states, memory.far_parameters));
}

bool divides_matrices(const ComposeOptions& options) {
  return options.optimizer.kind == optim::OptimizerKind::kMuon &&
         options.mesh.data * options.mesh.tensor > 1;
}

uint64_t muon_bytes(const ComposeOptions& options) {
  if (options.optimizer.kind != optim::OptimizerKind::kMuon) return 0;
  return optim::muon_bytes(optim::muon_matrices(options.design, arena_of(options), 1),
                           options.optimizer.muon, options.device.type);
}

std::string gathered_blocks(const ComposeOptions& options) {
  return options.sharding.reshard_after_forward ? "parameters of two blocks"
                                                : "parameters of all blocks";
}

std::string gathered_units(const ComposeOptions& options) {
  return is_tied(options.design) ? "gradients of two units and the embedding"
                                 : "gradients of two units";
}

// In the order of DevicePart.
Result<kernels::ArenaPlan> plan_device(const ComposeOptions& options,
                                       const DeviceFindings& findings) {
  const ShardMemory memory = shard_memory(options);
  const model::ModelMemory model = model_memory(options, findings.kernels);
  const ExchangeMemory exchange =
      exchange_memory({.exchange = options.exchange,
                       .arena = arena_of(options),
                       .bucket_bytes = options.bucket_bytes,
                       .optimizer = options.optimizer,
                       .ranks = static_cast<int>(options.mesh.data),
                       .rank = static_cast<int>(findings.data_rank),
                       .is_stream_ordered = findings.is_stream_ordered});
  const uint64_t buffer = offload_buffer_bytes(options, memory);
  const int64_t stashed = stashed_values(options);
  using kernels::ArenaUse;
  std::vector<kernels::ArenaRequest> requests{
      {ArenaUse::kParameters, "fp32", float_bytes(memory.parameters)},
      {ArenaUse::kParameters, "bf16 for products", bf16_bytes(memory.copies)},
      {ArenaUse::kParameters, "versions before the latest one", float_bytes(stashed)},
      {ArenaUse::kParameters, "bf16 of them", memory.copies > 0 ? bf16_bytes(stashed) : 0},
      {ArenaUse::kGradients, "fp32", float_bytes(memory.gradients)}};
  add_states(options, exchange.state_bytes > 0 ? float_bytes(memory.state) : 0, requests);
  requests.insert(
      requests.end(),
      {{ArenaUse::kGathered, gathered_blocks(options), float_bytes(memory.gathered)},
       {ArenaUse::kGathered, "bf16 of them", bf16_bytes(memory.gathered_copies)},
       {ArenaUse::kGathered, gathered_units(options), float_bytes(memory.unit_gradients)},
       {ArenaUse::kGathered, "gradients that travel", bf16_bytes(memory.travelling)},
       {ArenaUse::kWorkspace, "gradients that arrive", exchange.staging_bytes},
       {ArenaUse::kWorkspace, "offloaded values", buffer},
       {ArenaUse::kWorkspace, "offloaded values", buffer},
       {ArenaUse::kWorkspace, "a matrix that is orthogonalised", muon_bytes(options)},
       {ArenaUse::kActivations,
        keeps_one(options) ? "of a micro-batch" : "of micro-batches in flight", model.activations},
       {ArenaUse::kActivations, "their gradients", model.scratch},
       {ArenaUse::kActivations, "rows of all tensor-parallel ranks", model.gathered},
       {ArenaUse::kWorkspace, "operations", model.workspace},
       {ArenaUse::kWorkspace, "rotary embedding's angles", model.tables},
       {ArenaUse::kWorkspace, "losses and norm", kStepScalarBytes},
       {ArenaUse::kActivations, "between stages",
        message_bytes(options) * channel_count(options) * static_cast<uint64_t>(kChannelSlots)},
       {ArenaUse::kWorkspace, "data of micro-batches in flight",
        data_bytes(options) * static_cast<uint64_t>(data_places(options))}});
  add_batches(options, requests);
  TRY_ASSIGN(kernels::ArenaPlan plan, kernels::plan_arena(requests));
  if (is_cpu(options)) return plan;
  const uint64_t nccl = device_groups(options) * comm::kNcclMemoryBytes;
  plan.reserve = kCudaReserveBytes + findings.collectives_bytes.value_or(nccl);
  return plan;
}

// In the order of PinnedPart.
Result<kernels::ArenaPlan> plan_pinned(const ComposeOptions& options) {
  const uint64_t piece = is_cpu(options) ? 0 : kTransferPieceBytes;
  const uint64_t copied = options.copies_share ? piece : 0;
  const size_t sample =
      model::generate_memory(model_options(options, chunks_of(options).front(), {}),
                             shard_of(options), options.device.type)
          .pinned;
  std::vector<kernels::ArenaRequest> requests{
      {kernels::ArenaUse::kWorkspace, "losses and norm", kStepScalarBytes},
      {kernels::ArenaUse::kWorkspace, "state of the model", piece},
      {kernels::ArenaUse::kWorkspace, "state of the model", piece},
      {kernels::ArenaUse::kWorkspace, "state that is copied during a step", copied},
      {kernels::ArenaUse::kWorkspace, "state that is copied during a step", copied},
      {kernels::ArenaUse::kWorkspace, "tokens of a sample", sample}};
  const ShardMemory memory = shard_memory(options);
  const bool pinned = !offloads_to_file(options);
  add_states(options, pinned ? float_bytes(memory.far_states) : 0, requests);
  requests.push_back({kernels::ArenaUse::kParameters, "offloaded",
                      pinned ? float_bytes(memory.far_parameters) : 0});
  const bool passes = !is_cpu(options) && !pinned;
  for (int i = 0; i < 2; ++i) {
    requests.push_back({kernels::ArenaUse::kWorkspace, "offloaded values",
                        passes ? offload_buffer_bytes(options, memory) : 0});
  }
  add_batches(options, requests);
  return kernels::plan_arena(requests);
}

// Whether neighbours along the tensor axis have the same heads of keys and values.
bool shares_heads(const ComposeOptions& options) {
  const ModelConfig* config = transformer_of(options.design);
  return config != nullptr && config->kv_head_count() < options.mesh.tensor;
}

}  // namespace

size_t activation_bytes(const ComposeOptions& options, const Stage& chunk,
                        const model::KernelChoice& kernels) {
  return aligned(exact_bytes(options, chunk, kernels));
}

size_t message_bytes(const ComposeOptions& options) {
  return aligned(static_cast<size_t>(largest_edge(options)) *
                 kernels::dtype_bytes(transfer_dtype(options)));
}

int64_t data_places(const ComposeOptions& options) {
  return std::ranges::max(micro_batches_in_flight(options));
}

size_t data_bytes(const ComposeOptions& options) {
  if (data_places(options) == 1) return 0;
  return aligned(static_cast<size_t>(batch_design(options).bytes(options.micro_batch)));
}

const char* name_of(MemoryPlace place) {
  static constexpr const char* kNames[] = {"page-locked", "host", "shared by the ranks of a node"};
  return kNames[static_cast<size_t>(place)];
}

// With sharding, one for gradients, one for parameters and one of the replicas. A rank that is
// alone in a group exchanges nothing there. Along the tensor axis, one of all ranks and one of
// those with the same heads of keys and values. One if ranks share batches. With stages, one for
// each channel, one of all stages and one of those that hold a tied embedding.
uint64_t device_groups(const ComposeOptions& options) {
  const int64_t shards = options.sharding.ranks;
  const Mesh& mesh = options.mesh;
  return (shards > 1 ? 2 : 0) + (mesh.data > shards ? 1 : 0) + (mesh.tensor > 1 ? 1 : 0) +
         (shares_heads(options) ? 1 : 0) + (adds_up_batches(options) ? 1 : 0) +
         (divides_matrices(options) ? 1 : 0) + (mesh.pipeline > 1 ? channel_count(options) + 2 : 0);
}

Result<MemoryPlan> plan_memory(const ComposeOptions& options, const DeviceFindings& findings) {
  TRY(check(options));
  MemoryPlan plan;
  TRY_ASSIGN(plan.device, plan_device(options, findings));
  TRY_ASSIGN(plan.pinned, plan_pinned(options));
  const model::ModelMemory model = model_memory(options, findings.kernels);
  const ShardMemory shards = shard_memory(options);
  const size_t states = optim::state_kinds(options.optimizer).size();
  plan.offloaded_bytes =
      states * float_bytes(shards.far_states) + float_bytes(shards.far_parameters);
  plan.logits_rows = model.logits_rows;
  plan.logits_bytes = model.logits_bytes;
  return plan;
}

// The last share is the largest, or the first one, where only the first rank has the states.
uint64_t largest_share(const ComposeOptions& options) {
  const StateLayout layout(options.design, options.mesh, shard_cut(options));
  const int64_t rank = rank_of(options.mesh, options.place);
  const bool first_saves = state_holders(options.exchange) == StateHolders::kFirstRank;
  const auto values =
      static_cast<uint64_t>(first_saves ? layout.shards(rank).shard_count()
                                        : layout.share(rank, layout.replicas() - 1).count());
  return values * (1 + optim::state_kinds(options.optimizer).size());
}

MemoryPart snapshot_memory(const ComposeOptions& options) {
  return {MemoryPlace::kHost, MemoryBasis::kExact,
          "copy of the state, to save it in the background",
          largest_share(options) * sizeof(float)};
}

std::vector<MemoryPart> collectives_memory(const ComposeOptions& options, int64_t ranks_per_node) {
  const auto peers = static_cast<uint64_t>(options.mesh.size() - 1);
  const bool sums_on_gpus = !is_cpu(options) && options.mesh.size() > 1;
  const uint64_t shared = options.exchange == Exchange::kHost
                              ? host_segment_bytes(arena_of(options), options.optimizer,
                                                   static_cast<int>(options.mesh.data))
                              : 0;
  std::vector<MemoryPart> parts{
      {MemoryPlace::kShared, MemoryBasis::kExact, "parameters, states and gradients", shared},
      {MemoryPlace::kHost, MemoryBasis::kAtMost, "messages that arrive early",
       peers * comm::buffered_bytes_max({})},
      {MemoryPlace::kShared, MemoryBasis::kAtMost, "rings between ranks",
       comm::shm_bytes(static_cast<int>(ranks_per_node))},
      {MemoryPlace::kPinned, MemoryBasis::kAtMost, "collectives through host memory, without NCCL",
       sums_on_gpus ? staging_bytes_max(options) : 0}};
  std::erase_if(parts, [](const MemoryPart& part) { return part.bytes == 0; });
  return parts;
}

}  // namespace lockstep::parallel
