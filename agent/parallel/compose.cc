#include "agent/parallel/compose.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "agent/model/generate.h"
#include "agent/model/init.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::parallel {
namespace {

// The arena's parts, in the order of the requests.
enum Part : size_t {
  kParameters,
  kCopies,
  kGradients,
  kFirstMoments,
  kSecondMoments,
  kActivations,
  kScratch,
  kOperations,
  kAngles,
  kNorm,
  kScalars,
  kTokens,  // the first of the slots
};

// A rank has the whole model.
model::GptOptions model_options(const ComposeOptions& options,
                                const model::AttentionChoice& attention) {
  return {.config = options.config,
          .stage = whole_model(options.config),
          .precision = options.precision,
          .recompute = options.recompute,
          .attention = attention};
}

ActivationShape shape_of(const ComposeOptions& options, PassMode mode) {
  return {options.micro_batch, options.sequence, mode};
}

// A micro-batch that trains, one that evaluates and a text that is sampled take turns in the same
// memory.
model::GptMemory model_memory(const ComposeOptions& options,
                              const model::AttentionChoice& attention) {
  const model::GptOptions model = model_options(options, attention);
  const kernels::DeviceType device = options.device.type;
  model::GptMemory memory =
      model::gpt_memory(model, {}, shape_of(options, PassMode::kTrain), device);
  const model::GptMemory evaluating =
      model::gpt_memory(model, {}, shape_of(options, PassMode::kEvaluate), device);
  memory.activations =
      std::max({memory.activations, evaluating.activations, model::generate_bytes(model, device)});
  memory.workspace = std::max(memory.workspace, evaluating.workspace);
  return memory;
}

// GPU memory outside the arena that CUDA and cuBLASLt reserve when operations first run. CUDA loads
// the code of kernels with their first launch. It also reserves local memory: a thread's stack (1
// KiB by cudaLimitStackSize) on every multiprocessor, 264 MiB for the 132 x 2048 threads of an
// H200. An estimate, not measured.
constexpr uint64_t kCudaReserveBytes = uint64_t{512} << 20;

}  // namespace

Result<std::unique_ptr<Composition>> Composition::create(const ComposeOptions& options,
                                                         comm::Communicator& world) {
  const Mesh& mesh = options.mesh;
  if (mesh.size() != world.size()) {
    return invalid("[compose] the mesh needs " + std::to_string(mesh.size()) +
                   " ranks, but the world has " + std::to_string(world.size()));
  }
  if (mesh.pipeline != 1 || mesh.tensor != 1) {
    return invalid("[compose] pipeline and tensor parallelism are not in this version");
  }
  std::unique_ptr<Composition> composition(new Composition(world, options));
  TRY(composition->build());
  return composition;
}

Result<kernels::ArenaPlan> plan_memory(const ComposeOptions& options,
                                       const model::AttentionChoice& attention) {
  const auto count =
      static_cast<uint64_t>(parameter_arena(options.config, whole_model(options.config)).count);
  const uint64_t floats = count * sizeof(float);
  const uint64_t copies =
      options.precision == kernels::Precision::kBf16 ? count * sizeof(kernels::Bf16) : 0;
  const model::GptMemory model = model_memory(options, attention);
  const bool on_cpu =
      options.device.type == kernels::DeviceType::kCpu;  // where tokens are read in place
  const auto tokens = static_cast<uint64_t>(shape_of(options, PassMode::kTrain).rows());
  std::vector<kernels::ArenaRequest> requests{
      {kernels::ArenaUse::kParameters, "fp32", floats},
      {kernels::ArenaUse::kParameters, "bf16 for products", copies},
      {kernels::ArenaUse::kGradients, "fp32", floats},
      {kernels::ArenaUse::kOptimizer, "first moments", floats},
      {kernels::ArenaUse::kOptimizer, "second moments", floats},
      {kernels::ArenaUse::kActivations, "of a micro-batch", model.activations},
      {kernels::ArenaUse::kActivations, "their gradients", model.scratch},
      {kernels::ArenaUse::kWorkspace, "operations", model.workspace},
      {kernels::ArenaUse::kWorkspace, "rotary embedding's angles", model.angles},
      {kernels::ArenaUse::kWorkspace, "norm of the gradients", kernels::kSquaredNormWorkspace},
      {kernels::ArenaUse::kWorkspace, "losses and norm", kStepScalarBytes}};
  for (size_t slot = 0; slot < kTokenSlots; ++slot) {
    requests.push_back({kernels::ArenaUse::kWorkspace, "tokens and targets",
                        on_cpu ? 0 : 2 * tokens * sizeof(int32_t)});
  }
  TRY_ASSIGN(kernels::ArenaPlan plan, kernels::plan_arena(requests));
  plan.reserve = on_cpu ? 0 : kCudaReserveBytes;
  return plan;
}

// Finish pending work before freeing memory it may use.
Composition::~Composition() {
  (void)reductions_.synchronize();
  (void)stream_.synchronize();
}

Status Composition::build() {
  TRY_ASSIGN(ops_, kernels::device_ops(options_.device.type));
  TRY_ASSIGN(stream_, kernels::Stream::create(options_.device));
  TRY_ASSIGN(reductions_, kernels::Stream::create(options_.device));
  place_ = coordinates(options_.mesh, world_.rank());
  if (options_.groups.empty()) options_.groups = mesh_groups(options_.mesh);
  TRY_ASSIGN(groups_, RankGroups::create(world_, options_.groups));
  TRY_ASSIGN(data_group_, groups_->of(Axis::kData));
  TRY(build_model());
  TRY(allocate());
  return build_parts();
}

Result<model::AttentionChoice> Composition::prepare_attention() const {
  if (options_.attention == kernels::AttentionBy::kOwn) return model::AttentionChoice();
  model::AttentionChoice choice{
      .by = options_.attention,
      .shape = model::attention_shape(options_.config, options_.micro_batch, options_.sequence)};
  TRY_ASSIGN(choice.workspace_bytes,
             kernels::dnn::prepare_attention(options_.device, choice.shape));
  return choice;
}

Status Composition::build_model() {
  TRY_ASSIGN(attention_, prepare_attention());
  TRY_ASSIGN(model::Gpt model,
             model::Gpt::create(model_options(options_, attention_), *ops_, stream_, region_));
  model_.emplace(std::move(model));
  return {};
}

Status Composition::allocate() {
  TRY_ASSIGN(kernels::ArenaPlan plan, plan_memory(options_, attention_));
  if (options_.device.type == kernels::DeviceType::kCuda) {
    plan.reserve += data_group_->device_traits().memory_bytes;
  }
  TRY_ASSIGN(arena_, kernels::Arena::allocate(options_.device, std::move(plan)));
  model_->use_memory({.scratch = arena_->workspace(kScratch),
                      .workspace = arena_->workspace(kOperations),
                      .angles = arena_->workspace(kAngles)});
  return {};
}

Status Composition::build_parts() {
  const ModelConfig& config = options_.config;
  const auto floats = [this](Part part) { return static_cast<float*>(arena_->at(part)); };
  auto* copies = static_cast<kernels::Bf16*>(arena_->at(kCopies));
  store_.emplace(ReplicatedStoreOptions{.config = config,
                                        .stage = model_->stage(),
                                        .shard = region_.shard(),
                                        .parameters = floats(kParameters),
                                        .copies = copies});
  TRY_ASSIGN(sink_, BucketedSink::create({.arena = store_->arena(),
                                          .bucket_bytes = options_.bucket_bytes,
                                          .gradients = floats(kGradients)},
                                         *data_group_,
                                         {.compute = &stream_, .communication = &reductions_}));
  TRY_ASSIGN(optimizer_, optim::AdamWOptimizer::create(config, store_->arena(),
                                                       {.parameters = store_->parameters(),
                                                        .gradients = sink_->gradients(),
                                                        .copies = copies,
                                                        .first_moments = floats(kFirstMoments),
                                                        .second_moments = floats(kSecondMoments)},
                                                       options_.optimizer, options_.device, *ops_));
  TRY_ASSIGN(norm_, optim::GradientNorm::create(config, store_->arena(), sink_->gradients(),
                                                options_.device, *ops_, arena_->workspace(kNorm)));
  TRY_ASSIGN(scalars_, StepScalars::create(options_.device, arena_->at(kScalars)));
  transfer_.emplace(stream_);
  return {};
}

Result<model::MicroBatch> Composition::make_micro_batch(PassMode mode) {
  return model_->make_micro_batch(shape_of(options_, mode), micro_batch_memory());
}

kernels::Workspace Composition::micro_batch_memory() const {
  return arena_->workspace(kActivations);
}

kernels::Workspace Composition::token_memory(size_t slot) const {
  CHECK(slot < kTokenSlots);
  return arena_->workspace(kTokens + slot);
}

Status Composition::broadcast_state(int64_t step) {
  const size_t count = step > 0 ? 3 : 1;
  const DeviceState mine = state();
  const std::array<float*, 3> arenas{mine.parameters, mine.first_moments, mine.second_moments};
  for (size_t i = 0; i < count && data_group_->size() > 1; ++i) {
    TRY(data_group_->broadcast({.data = arenas[i],
                                .count = store_->arena().count,
                                .device = options_.device,
                                .stream = stream_.handle()},
                               0));
  }
  optimizer_->refresh_copies(stream_, step);
  return {};
}

DeviceState Composition::state() {
  return {.parameters = store_->parameters(),
          .first_moments = optimizer_->first_moments(),
          .second_moments = optimizer_->second_moments()};
}

Status Composition::initialise(uint64_t seed) {
  const std::vector<ArenaEntry>& entries = store_->arena().entries;
  std::vector<ValueRun> runs;
  for (const ArenaEntry& entry : entries) {
    runs.push_back({store_->parameters() + entry.offset, entry.count});
  }
  const std::vector<Parameter> table = parameter_table(options_.config);
  TRY(transfer_->write(runs, [&](size_t run, int64_t first, std::span<float> to) {
    const ArenaEntry& entry = entries[run];
    lockstep::model::initialise({.parameter = table[static_cast<size_t>(entry.id)],
                                 .entry = entry,
                                 .shard = region_.shard(),
                                 .layers = options_.config.layers,
                                 .seed = seed},
                                first, to);
    return Status();
  }));
  optimizer_->refresh_copies(stream_, 0);
  return {};
}

void Composition::begin_step() {
  begin_losses();
  sink_->begin_step(*ops_);
}

void Composition::update(const UpdateOptions& options) {
  StepValues* values = scalars_->on_device();
  norm_->squared(stream_, values->squares);
  // Without clipping a norm that isn't finite stops the update all the same.
  const double no_clipping = std::numeric_limits<double>::max();
  ops_->clip_scale(stream_, {.squares = values->squares,
                             .count = 2,
                             .scale = &values->scale,
                             .clip_norm = options.clip_norm > 0 ? options.clip_norm : no_clipping});
  optimizer_->step(stream_, {.learning_rate = options.learning_rate,
                             .device_scale = &values->scale,
                             .step = options.step});
}

}  // namespace lockstep::parallel
