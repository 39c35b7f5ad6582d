#include "agent/parallel/memory_plan.h"

#include <algorithm>
#include <bit>
#include <span>

#include "agent/comm/gpu/nccl_backend.h"
#include "agent/comm/gpu/staging_plan.h"
#include "agent/comm/make_communicator.h"
#include "agent/parallel/buckets.h"
#include "agent/parallel/exchange_memory.h"
#include "agent/parallel/host_transfer.h"
#include "agent/parallel/offload/piece_stream.h"
#include "agent/parallel/shard/shard_memory.h"
#include "agent/parallel/step_scalars.h"
#include "common/layout/state_layout.h"

namespace lockstep::parallel {
namespace {

// GPU memory outside the arena that CUDA and cuBLASLt reserve when operations first run. CUDA loads
// the code of kernels with their first launch. It also reserves local memory: a thread's stack (1
// KiB by cudaLimitStackSize) on every multiprocessor, 264 MiB for the 132 x 2048 threads of an
// H200. An estimate, not measured.
constexpr uint64_t kCudaReserveBytes = uint64_t{512} << 20;

bool is_cpu(const ComposeOptions& options) {
  return options.device.type == kernels::DeviceType::kCpu;
}

// A micro-batch that trains, one that evaluates and a text that is sampled take turns in the same
// memory.
model::ModelMemory model_memory(const ComposeOptions& options,
                                const model::AttentionChoice& attention) {
  const model::ModelOptions model = model_options(options, attention);
  const kernels::DeviceType device = options.device.type;
  model::ModelMemory memory =
      model::model_memory(model, {}, micro_batch_shape(options, PassMode::kTrain), device);
  const model::ModelMemory evaluating =
      model::model_memory(model, {}, micro_batch_shape(options, PassMode::kEvaluate), device);
  memory.activations = std::max(
      {memory.activations, evaluating.activations, model::generate_memory(model, device).device});
  memory.workspace = std::max(memory.workspace, evaluating.workspace);
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

// In the order of DevicePart.
Result<kernels::ArenaPlan> plan_device(const ComposeOptions& options,
                                       const DeviceFindings& findings) {
  const ShardMemory memory = shard_memory(options);
  const model::ModelMemory model = model_memory(options, findings.attention);
  const ExchangeMemory exchange =
      exchange_memory({.exchange = options.exchange,
                       .arena = parameter_arena(options.design, whole_model(options.design)),
                       .bucket_bytes = options.bucket_bytes,
                       .optimizer = options.optimizer,
                       .ranks = static_cast<int>(options.mesh.data),
                       .rank = static_cast<int>(findings.data_rank),
                       .is_stream_ordered = findings.is_stream_ordered});
  const uint64_t buffer = offload_buffer_bytes(options, memory);
  using kernels::ArenaUse;
  std::vector<kernels::ArenaRequest> requests{
      {ArenaUse::kParameters, "fp32", float_bytes(memory.parameters)},
      {ArenaUse::kParameters, "bf16 for products", bf16_bytes(memory.copies)},
      {ArenaUse::kGradients, "fp32", float_bytes(memory.gradients)}};
  add_states(options, exchange.state_bytes > 0 ? float_bytes(memory.state) : 0, requests);
  requests.insert(
      requests.end(),
      {{ArenaUse::kGathered, "parameters of two blocks", float_bytes(memory.gathered)},
       {ArenaUse::kGathered, "bf16 of them", bf16_bytes(memory.gathered_copies)},
       {ArenaUse::kGathered, "gradients of two blocks", float_bytes(memory.unit_gradients)},
       {ArenaUse::kGathered, "gradients that travel", bf16_bytes(memory.travelling)},
       {ArenaUse::kWorkspace, "gradients that arrive", exchange.staging_bytes},
       {ArenaUse::kWorkspace, "offloaded values", buffer},
       {ArenaUse::kWorkspace, "offloaded values", buffer},
       {ArenaUse::kActivations, "of a micro-batch", model.activations},
       {ArenaUse::kActivations, "their gradients", model.scratch},
       {ArenaUse::kWorkspace, "operations", model.workspace},
       {ArenaUse::kWorkspace, "rotary embedding's angles", model.tables},
       {ArenaUse::kWorkspace, "losses and norm", kStepScalarBytes}});
  add_batches(options, requests);
  TRY_ASSIGN(kernels::ArenaPlan plan, kernels::plan_arena(requests));
  if (is_cpu(options)) return plan;
  const uint64_t nccl = options.mesh.data > 1 ? comm::kNcclMemoryBytes : 0;
  plan.reserve = kCudaReserveBytes + findings.collectives_bytes.value_or(nccl);
  return plan;
}

// In the order of PinnedPart.
Result<kernels::ArenaPlan> plan_pinned(const ComposeOptions& options) {
  const uint64_t piece = is_cpu(options) ? 0 : kTransferPieceBytes;
  const size_t sample =
      model::generate_memory(model_options(options, {}), options.device.type).pinned;
  std::vector<kernels::ArenaRequest> requests{
      {kernels::ArenaUse::kWorkspace, "losses and norm", kStepScalarBytes},
      {kernels::ArenaUse::kWorkspace, "state of the model", piece},
      {kernels::ArenaUse::kWorkspace, "state of the model", piece},
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

// Two parts of an operation are under way at a time, each with an input and an output, in blocks
// whose sizes are powers of two (StagingBackend).
uint64_t staging_bytes(int64_t floats) {
  const auto bytes = static_cast<uint64_t>(floats) * sizeof(float);
  return 4 * std::bit_ceil(std::min<uint64_t>(bytes, comm::kStagingBytes));
}

// Every bucket may be under way, after the parameters were broadcast, and blocks are kept.
uint64_t staging_bytes_max(const ComposeOptions& options) {
  const ParameterArena arena = parameter_arena(options.design, whole_model(options.design));
  uint64_t bytes = staging_bytes(arena.count);
  for (const Bucket& bucket : make_buckets(arena, options.bucket_bytes)) {
    bytes += staging_bytes(bucket.count);
  }
  return bytes;
}

}  // namespace

const char* name_of(MemoryPlace place) {
  static constexpr const char* kNames[] = {"page-locked", "host", "shared by the ranks of a node"};
  return kNames[static_cast<size_t>(place)];
}

bool offloads_to_file(const ComposeOptions& options) {
  return is_cpu(options) || !options.offload.path.empty();
}

Result<MemoryPlan> plan_memory(const ComposeOptions& options, const DeviceFindings& findings) {
  MemoryPlan plan;
  TRY_ASSIGN(plan.device, plan_device(options, findings));
  TRY_ASSIGN(plan.pinned, plan_pinned(options));
  const model::ModelMemory model = model_memory(options, findings.attention);
  const ShardMemory shards = shard_memory(options);
  const size_t states = optim::state_kinds(options.optimizer).size();
  plan.offloaded_bytes =
      states * float_bytes(shards.far_states) + float_bytes(shards.far_parameters);
  plan.logits_rows = model.logits_rows;
  plan.logits_bytes = model.logits_bytes;
  return plan;
}

// The last share is the largest, or the first one, where only the first rank has the states.
MemoryPart snapshot_memory(const ComposeOptions& options) {
  const StateLayout layout(options.design, options.mesh, shard_cut(options));
  const bool first_saves = state_holders(options.exchange) == StateHolders::kFirstRank;
  const auto values =
      static_cast<uint64_t>(first_saves ? layout.shards(0).shard_count()
                                        : layout.share(0, layout.replicas() - 1).count());
  const size_t kinds = 1 + optim::state_kinds(options.optimizer).size();
  return {MemoryPlace::kHost, MemoryBasis::kExact,
          "copy of the state, to save it in the background", values * kinds * sizeof(float)};
}

std::vector<MemoryPart> collectives_memory(const ComposeOptions& options, int64_t ranks_per_node) {
  const auto peers = static_cast<uint64_t>(options.mesh.size() - 1);
  const bool sums_on_gpus = !is_cpu(options) && options.mesh.data > 1;
  const uint64_t shared =
      options.exchange == Exchange::kHost
          ? host_segment_bytes(parameter_arena(options.design, whole_model(options.design)),
                               options.optimizer, static_cast<int>(options.mesh.data))
          : 0;
  std::vector<MemoryPart> parts{
      {MemoryPlace::kShared, MemoryBasis::kExact, "parameters, states and gradients", shared},
      {MemoryPlace::kHost, MemoryBasis::kAtMost, "messages that arrive early",
       peers * comm::buffered_bytes_max({})},
      {MemoryPlace::kShared, MemoryBasis::kAtMost, "rings between ranks",
       comm::shm_bytes(static_cast<int>(ranks_per_node))},
      {MemoryPlace::kPinned, MemoryBasis::kAtMost, "gradients through host memory, without NCCL",
       sums_on_gpus ? staging_bytes_max(options) : 0}};
  std::erase_if(parts, [](const MemoryPart& part) { return part.bytes == 0; });
  return parts;
}

}  // namespace lockstep::parallel
