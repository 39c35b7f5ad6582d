#include "agent/train/job_plan.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "agent/server/placement.h"
#include "agent/train/checkpoint/memory_states.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/forming.h"
#include "agent/train/servers/round_plan.h"
#include "agent/train/weights/import_weights.h"
#include "kernels/device/parallel.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::train {
namespace {

// Memory of a rank on a CPU that no plan has: the program, its libraries, their threads and what
// oneDNN keeps for its products. Measured with models of up to 480 MiB: 15 to 22 MiB with one
// thread, up to 47 MiB with four.
constexpr uint64_t kProgramBytes = uint64_t{48} << 20;

// Returns how many neighbours on the data axis divide the state.
Result<int64_t> sharding_ranks(const RoundSettings& round) {
  if (round.sharing.sharding == "none") return 1;
  if (round.sharing.shardingGroup == "data") return round.mesh.data;
  const int64_t ranks = std::min(round.ranks_per_node / round.mesh.tensor, round.mesh.data);
  const bool is_whole = ranks > 0 && round.mesh.data % ranks == 0 &&
                        round.ranks_per_node % (round.mesh.tensor * ranks) == 0;
  if (!is_whole) {
    return invalid("spec.parallelism.shardingGroup: node: " + std::to_string(round.ranks_per_node) +
                       " processes per node / tensor " + std::to_string(round.mesh.tensor) +
                       " does not divide the " + std::to_string(round.mesh.data) +
                       " data-parallel ranks, expected data",
                   Blame::kConfig);
  }
  return ranks;
}

Result<ShardingOptions> sharding_options(const RoundSettings& round) {
  const StateSharing& from = round.sharing;
  TRY_ASSIGN(const Sharding sharding, parse_sharding(from.sharding));
  TRY_ASSIGN(const int64_t ranks, sharding_ranks(round));
  return ShardingOptions{.sharding = sharding,
                         .ranks = ranks,
                         .reshard_after_forward = from.reshardAfterForward,
                         .prefetch = from.prefetch,
                         .gathers_bf16 = from.gatherPrecision == "bf16",
                         .reduces_bf16 = from.reducePrecision == "bf16"};
}

std::optional<kernels::DType> transfer_dtype(const StateSharing& from) {
  if (from.transferPrecision == "auto") return std::nullopt;
  return from.transferPrecision == "bf16" ? kernels::DType::kBf16 : kernels::DType::kF32;
}

// Any but 0, which stands for rounding to nearest.
uint64_t rounding_seed(const TrainSpec& train) {
  return train.rounding == "stochastic" ? static_cast<uint64_t>(train.seed) + 1 : 0;
}

int64_t threads_of(const TrainingJobSpec& spec) {
  if (spec.threadsPerProcess > 0) return spec.threadsPerProcess;
  return std::max<int64_t>(std::thread::hardware_concurrency() / processes_per_node(spec), 1);
}

// A CPU that does not multiply bf16 computes in fp32 (agree()).
kernels::Precision precision_of(const TrainingJobSpec& spec) {
  const bool has_bf16 = spec.gpusPerNode > 0 || kernels::cpu_matmul_support().native_bf16;
  return spec.train->precision == "bf16" && has_bf16 ? kernels::Precision::kBf16
                                                     : kernels::Precision::kF32;
}

bool may_use_cudnn(const TrainSpec& train, const parallel::ComposeOptions& options) {
  return parallel::attention_of(options).has_value() && train.attention != "own" &&
         options.precision == kernels::Precision::kBf16 &&
         options.device.type == kernels::DeviceType::kCuda;
}

// Returns our own kernels if this machine cannot tell what cuDNN's take.
model::AttentionChoice cudnn_if_known(const parallel::ComposeOptions& options) {
  const std::optional<kernels::AttentionShape> shape = parallel::attention_of(options);
  CHECK(shape.has_value());
  const Result<size_t> bytes = kernels::dnn::prepare_attention(options.device, *shape);
  if (!bytes.ok()) return {};
  return {.by = kernels::AttentionBy::kCudnn, .shape = *shape, .workspace_bytes = *bytes};
}

// Returns whether a job on such a device takes cuDNN's convolutions if all ranks have them.
bool may_convolve_by_cudnn(const parallel::ComposeOptions& options) {
  return std::holds_alternative<ConvnetConfig>(options.design) &&
         options.device.type == kernels::DeviceType::kCuda;
}

// Sets the kernels of the plan, and returns them.
model::KernelChoice choose_kernels(const TrainSpec& train, JobPlan& plan) {
  model::KernelChoice chosen;
  if (may_use_cudnn(train, plan.options)) {
    chosen.attention = cudnn_if_known(plan.options);
    plan.options.attention = chosen.attention.by;
    plan.lacks_cudnn |= chosen.attention.by == kernels::AttentionBy::kOwn;
  }
  if (may_convolve_by_cudnn(plan.options)) {
    Result<model::ConvolutionChoice> convolutions = parallel::prepare_convolutions(plan.options);
    plan.lacks_cudnn |= !convolutions.ok();
    if (convolutions.ok()) {
      plan.options.convolutions = kernels::Conv2dBy::kCudnn;
      chosen.convolutions = std::move(convolutions).value();
    }
  }
  return chosen;
}

// NCCL serves ranks that have a GPU each. Otherwise they exchange through host memory, and nothing
// is kept free for NCCL.
parallel::DeviceFindings findings_of(const JobPlan& plan, const model::KernelChoice& kernels) {
  parallel::DeviceFindings findings{.kernels = kernels, .data_rank = 0};
  findings.is_stream_ordered = plan.ranks_per_gpu() == 1;
  if (plan.ranks_per_gpu() > 1) findings.collectives_bytes = 0;
  return findings;
}

std::vector<parallel::MemoryPart> train_memory(const TrainSpec& train,
                                               const parallel::ComposeOptions& options) {
  const auto batch =
      static_cast<uint64_t>(parallel::batch_design(options).bytes(options.micro_batch));
  const bool validates = train.data.validationFraction > 0;
  const bool on_cpu = options.device.type == kernels::DeviceType::kCpu;
  const ModelConfig* transformer = transformer_of(options.design);
  const bool imports = !train.model.weights.path.empty() && transformer != nullptr;
  std::vector<parallel::MemoryPart> parts{
      {parallel::MemoryPlace::kHost, parallel::MemoryBasis::kEstimate,
       on_cpu ? "the program and its libraries" : "the program, without CUDA's libraries",
       kProgramBytes},
      {parallel::MemoryPlace::kHost, parallel::MemoryBasis::kExact,
       "micro-batches that are read ahead", BatchLoader::kSlots * batch},
      {parallel::MemoryPlace::kHost, parallel::MemoryBasis::kExact,
       "a micro-batch of the validation", validates ? batch : 0},
      {parallel::MemoryPlace::kHost, parallel::MemoryBasis::kAtMost,
       "the import of weights, on rank 0 before the first step",
       imports ? import_bytes_max(*transformer) : 0}};
  std::erase_if(parts, [](const parallel::MemoryPart& part) { return part.bytes == 0; });
  return parts;
}

}  // namespace

Result<parallel::ComposeOptions> compose_options(const TrainSpec& train,
                                                 const RoundSettings& round) {
  TRY_ASSIGN(const Recompute recompute,
             parse_recompute(recompute_of(train.recompute, round.schedule)));
  const OptimizerSpec& optimizer = train.optimizer;
  TRY_ASSIGN(const optim::OptimizerKind kind, optim::parse_optimizer(optimizer.name));
  TRY_ASSIGN(const ShardingOptions sharding, sharding_options(round));
  TRY_ASSIGN(const Offload offload, parse_offload(round.sharing.offload));
  TRY_ASSIGN(const Exchange exchange, parse_exchange(round.sharing.exchange));
  PipelineKind pipeline = PipelineKind::kOneForwardOneBackward;
  if (!round.schedule.empty()) {
    TRY_ASSIGN(pipeline, parse_pipeline_kind(round.schedule));
  }
  const ModelDesign design = model_design(train);
  return parallel::ComposeOptions{
      .design = design,
      .mesh = round.mesh,
      .place = round.place,
      .pipeline = pipeline,
      .versions = {.stashes = round.sharing.weightStashing,
                   .is_vertical = round.sharing.verticalSync},
      .groups = round.groups,
      .micro_batches = round.micro_batches,
      .micro_batch = round.micro_batch,
      .samples = round.samples,
      .step_samples = round.step_samples,
      .first_samples = round.first_samples,
      .sequence = std::max<int64_t>(tokens_per_sample(design), 1),
      .bucket_bytes = train.bucketBytes,
      .optimizer = {.kind = kind,
                    .beta1 = optimizer.beta1,
                    .beta2 = optimizer.beta2,
                    .epsilon = optimizer.epsilon,
                    .momentum = optimizer.momentum,
                    .nesterov = optimizer.nesterov,
                    .weight_decay = optimizer.weightDecay,
                    .average_decay = train.ema,
                    .rounding_seed = rounding_seed(train),
                    .muon = {.momentum = optimizer.matrixMomentum,
                             .rate = optimizer.matrixLearningRate / optimizer.learningRate,
                             .precision = round.precision}},
      .precision = round.precision,
      .recompute = recompute,
      .sequence_parallel = round.sharing.sequenceParallel,
      .dropout = {.probability = train.dropout, .seed = static_cast<uint64_t>(train.seed)},
      .transfer = transfer_dtype(round.sharing),
      .sharding = sharding,
      .offload = {.offload = offload, .path = round.sharing.offloadPath},
      .exchange = exchange,
      .attention = round.attention,
      .convolutions = round.convolutions,
      .device = round.device,
      .shared = round.shared,
      .copies_share = round.keeps_states};
}

Result<parallel::ComposeOptions> served_options(const TrainSpec& train, const BatchShape& batch,
                                                int64_t rank) {
  RoundSettings round{.mesh = {},
                      .micro_batch = batch.micro,
                      .micro_batches = batch.accumulation,
                      .step_samples = batch.global()};
  for (int64_t i = 0; i < batch.accumulation; ++i) {
    round.samples.push_back(batch.rows(i, rank));
    round.first_samples.push_back(global_sample(batch, {.micro_index = i, .rank = rank}));
  }
  TRY_ASSIGN(parallel::ComposeOptions options, compose_options(train, round));
  options.exchange = Exchange::kServers;
  return options;
}

uint64_t JobPlan::gpu_bytes() const {
  return static_cast<uint64_t>(ranks_per_gpu()) * (memory.device.bytes + memory.device.reserve);
}

uint64_t JobPlan::node_bytes() const {
  uint64_t rank = memory.pinned.bytes + (gpus_per_node == 0 ? memory.device.bytes : 0);
  uint64_t shared = 0;
  for (const parallel::MemoryPart& part : memory.others) {
    if (part.basis == parallel::MemoryBasis::kAtMost) continue;
    (part.place == parallel::MemoryPlace::kShared ? shared : rank) += part.bytes;
  }
  return static_cast<uint64_t>(ranks_per_node) * rank + shared;
}

uint64_t JobPlan::server_node_bytes() const {
  uint64_t bytes = 0;
  for (const parallel::MemoryPart& part : server) {
    if (part.basis != parallel::MemoryBasis::kAtMost) bytes += part.bytes;
  }
  return static_cast<uint64_t>(ranks_per_node) * bytes;
}

namespace {

// Adds the memory for states that outlive a rank's process.
void add_states_memory(const MemoryStatesSpec& wanted, const JobPlan& plan,
                       std::vector<parallel::MemoryPart>& parts) {
  const auto add = [&](const char* name) {
    parallel::MemoryPart& part = parts.emplace_back();
    part.name = name;
    part.bytes = MemoryStates::bytes(parallel::largest_share(plan.options));
  };
  add("two states in memory, to resume from");
  if (wanted.copies > 0 && plan.nodes > 1) add("two states of a rank of another node");
}

// Returns what a rank of the stage in plan.options needs in addition to what it composes.
std::vector<parallel::MemoryPart> other_memory(const TrainingJobSpec& spec, const JobPlan& plan) {
  std::vector<parallel::MemoryPart> parts = train_memory(*spec.train, plan.options);
  if (!spec.checkpoint.path.empty()) parts.push_back(parallel::snapshot_memory(plan.options));
  if (plan.options.copies_share) add_states_memory(*spec.checkpoint.memory, plan, parts);
  for (parallel::MemoryPart& part :
       parallel::collectives_memory(plan.options, plan.ranks_per_node)) {
    parts.push_back(std::move(part));
  }
  return parts;
}

// Returns the memory that decides whether a stage fits: that of the GPU, or all of it.
uint64_t deciding_bytes(const JobPlan& plan, const parallel::MemoryPlan& memory) {
  if (plan.gpus_per_node > 0) return memory.device.bytes + memory.device.reserve;
  uint64_t bytes = memory.device.bytes + memory.pinned.bytes;
  for (const parallel::MemoryPart& part : memory.others) bytes += part.bytes;
  return bytes;
}

// The stages of a pipeline differ.
Status take_largest_stage(const TrainingJobSpec& spec, JobPlan& plan) {
  MeshCoordinates largest;
  for (int64_t stage = 0; stage < plan.options.mesh.pipeline; ++stage) {
    plan.options.place = {.pipeline = stage};
    const model::KernelChoice kernels = choose_kernels(*spec.train, plan);
    TRY_ASSIGN(parallel::MemoryPlan memory,
               parallel::plan_memory(plan.options, findings_of(plan, kernels)));
    memory.others = other_memory(spec, plan);
    if (stage > 0 && deciding_bytes(plan, memory) <= deciding_bytes(plan, plan.memory)) continue;
    largest = plan.options.place;
    plan.memory = std::move(memory);
  }
  plan.options.place = largest;
  return {};
}

// Returns the memory of the server that holds the most.
Result<std::vector<parallel::MemoryPart>> server_memory(const TrainingJobSpec& spec,
                                                        uint64_t workers, uint64_t servers) {
  TRY_ASSIGN(const server::Catalog catalog, dense_catalog(*spec.train));
  std::vector<uint32_t> ranks(servers);
  std::iota(ranks.begin(), ranks.end(), 0u);
  TRY_ASSIGN(const server::View view,
             server::place(catalog, {.workers = {0}, .servers = ranks},
                           {.copies = static_cast<uint32_t>(spec.parameterServers->copies)}));
  std::vector<uint64_t> values(servers);  // of parameters
  std::vector<uint64_t> all(servers);     // and of the optimizer's states
  for (const server::DenseRange& range : view.ranges) {
    const uint64_t count = range.end - range.begin;
    const uint64_t states = optim::state_kinds(catalog.tensors[range.tensor].optimizer).size();
    for (const uint32_t server : range.chain) {
      values[server] += count;
      all[server] += count * (1 + states);
    }
  }
  const uint64_t bytes = *std::ranges::max_element(values) * sizeof(float);
  const uint64_t all_bytes = *std::ranges::max_element(all) * sizeof(float);
  const bool adds_up = spec.parameterServers->consistency == "synchronous" && workers > 1;
  using parallel::MemoryBasis;
  using parallel::MemoryPlace;
  return std::vector<parallel::MemoryPart>{
      {MemoryPlace::kHost, MemoryBasis::kEstimate, "the program and its libraries", kProgramBytes},
      {MemoryPlace::kHost, MemoryBasis::kExact, "parameters and the optimizer's states", all_bytes},
      {MemoryPlace::kHost, MemoryBasis::kExact, "sums of gradients", adds_up ? bytes : 0},
      {MemoryPlace::kHost, MemoryBasis::kAtMost, "gradients and parameters on their way",
       2 * workers * bytes}};
}

// Workers compute alone, and the servers have the states.
Status plan_served(const TrainingJobSpec& spec, JobPlan& plan) {
  const TrainSpec& train = *spec.train;
  const int64_t workers = plan.nodes * plan.ranks_per_node;
  TRY_ASSIGN(const BatchShape batch, batch_shape(train.batch, {.data = workers}));
  TRY_ASSIGN(plan.options, served_options(train, batch, 0));
  TRY(validate(plan.options.design, 1, "spec.train.model"));
  TRY_ASSIGN(plan.memory, parallel::plan_memory(plan.options));
  plan.memory.others = train_memory(train, plan.options);
  if (spec.parameterServers->pushPrecision != "fp32") {
    const auto count = static_cast<uint64_t>(parameter_count(plan.options.design));
    plan.memory.others.push_back({parallel::MemoryPlace::kHost, parallel::MemoryBasis::kExact,
                                  "losses of gradients on their way", count * sizeof(float)});
  }
  plan.server_nodes = spec.parameterServers->nodes;
  TRY_ASSIGN(plan.server,
             server_memory(spec, static_cast<uint64_t>(workers),
                           static_cast<uint64_t>(plan.server_nodes * plan.ranks_per_node)));
  return {};
}

}  // namespace

Result<JobPlan> plan_job(const TrainingJobSpec& spec) {
  CHECK(spec.train.has_value());
  const TrainSpec& train = *spec.train;
  kernels::set_threads(static_cast<int>(threads_of(spec)));
  JobPlan plan{.options = {.design = {}, .mesh = {}, .optimizer = {}},
               .memory = {},
               .nodes = spec.nodes,
               .ranks_per_node = processes_per_node(spec),
               .gpus_per_node = spec.gpusPerNode};
  if (spec.parameterServers) {
    TRY(plan_served(spec, plan));
    return plan;
  }
  TRY_ASSIGN(Mesh mesh, make_mesh({.world_size = plan.nodes * plan.ranks_per_node,
                                   .pipeline = spec.parallelism.pipeline,
                                   .tensor = spec.parallelism.tensor}));
  mesh.virtual_stages = spec.parallelism.virtualStages;
  mesh.part_layers = spec.parallelism.stages;
  TRY_ASSIGN(const BatchShape batch, batch_shape(train.batch, mesh));
  const kernels::DeviceType device =
      spec.gpusPerNode > 0 ? kernels::DeviceType::kCuda : kernels::DeviceType::kCpu;
  TRY_ASSIGN(plan.options,
             compose_options(train, {.mesh = mesh,
                                     .sharing = spec.parallelism,
                                     .schedule = spec.parallelism.pipelineSchedule,
                                     .ranks_per_node = plan.ranks_per_node,
                                     .micro_batch = batch.micro,
                                     .micro_batches = batch.accumulation,
                                     .precision = precision_of(spec),
                                     .device = {device, 0},
                                     .keeps_states = spec.checkpoint.memory.has_value()}));
  TRY(validate(plan.options.design, mesh.tensor, "spec.train.model"));
  TRY(take_largest_stage(spec, plan));
  return plan;
}

}  // namespace lockstep::train
