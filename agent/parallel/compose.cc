#include "agent/parallel/compose.h"

#include <array>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/model/init.h"
#include "agent/model/passes.h"
#include "agent/parallel/world_totals.h"
#include "common/layout/pipeline_schedule.h"
#include "common/layout/schedule_check.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::parallel {
namespace {

kernels::Workspace part_of(const kernels::Arena& arena, DevicePart part) {
  return arena.workspace(static_cast<size_t>(part));
}

kernels::Workspace part_of(const kernels::Arena& pinned, PinnedPart part) {
  return pinned.workspace(static_cast<size_t>(part));
}

}  // namespace

Result<std::unique_ptr<Composition>> Composition::create(const ComposeOptions& options,
                                                         comm::Communicator& world,
                                                         const Clock& clock) {
  const Mesh& mesh = options.mesh;
  if (mesh.size() != world.size()) {
    return invalid("[compose] the mesh needs " + std::to_string(mesh.size()) +
                   " ranks, but the world has " + std::to_string(world.size()));
  }
  if (mesh.pipeline != 1 || mesh.tensor != 1) {
    return invalid("[compose] pipeline and tensor parallelism are not in this version");
  }
  std::unique_ptr<Composition> composition(new Composition(world, options));
  TRY(composition->build(clock));
  return composition;
}

// Finish pending work before freeing memory it may use.
Composition::~Composition() {
  (void)reductions_.synchronize();
  (void)stream_.synchronize();
}

Status Composition::build(const Clock& clock) {
  TRY_ASSIGN(ops_, kernels::device_ops(options_.device.type));
  TRY_ASSIGN(stream_, kernels::Stream::create(options_.device));
  TRY_ASSIGN(reductions_, kernels::Stream::create(options_.device));
  place_ = coordinates(options_.mesh, world_.rank());
  if (options_.groups.empty()) options_.groups = mesh_groups(options_.mesh);
  TRY_ASSIGN(groups_, RankGroups::create(world_, options_.groups));
  TRY_ASSIGN(data_group_, groups_->of(Axis::kData));
  TRY(build_model());
  TRY(allocate());
  TRY(build_parts());
  timer_ = make_step_timer(stream_, clock);
  return build_executor();
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
  TRY_ASSIGN(memory_, plan_memory(options_, {.attention = attention_,
                                             .collectives_bytes =
                                                 data_group_->device_traits().memory_bytes}));
  TRY_ASSIGN(arena_, kernels::Arena::allocate(options_.device, memory_.device));
  TRY_ASSIGN(pinned_, kernels::Arena::allocate_pinned(options_.device, memory_.pinned));
  model_->use_memory({.scratch = part_of(*arena_, DevicePart::kScratch),
                      .workspace = part_of(*arena_, DevicePart::kOperations),
                      .angles = part_of(*arena_, DevicePart::kAngles)});
  return {};
}

Status Composition::build_parts() {
  const ModelConfig& config = options_.config;
  const auto floats = [this](DevicePart part) {
    return static_cast<float*>(part_of(*arena_, part).data);
  };
  auto* copies = static_cast<kernels::Bf16*>(part_of(*arena_, DevicePart::kCopies).data);
  store_.emplace(ReplicatedStoreOptions{.config = config,
                                        .stage = model_->stage(),
                                        .shard = region_.shard(),
                                        .parameters = floats(DevicePart::kParameters),
                                        .copies = copies});
  TRY_ASSIGN(sink_, BucketedSink::create({.arena = store_->arena(),
                                          .bucket_bytes = options_.bucket_bytes,
                                          .gradients = floats(DevicePart::kGradients)},
                                         *data_group_,
                                         {.compute = &stream_, .communication = &reductions_}));
  TRY_ASSIGN(optimizer_,
             optim::AdamWOptimizer::create(config, store_->arena(),
                                           {.parameters = store_->parameters(),
                                            .gradients = sink_->gradients(),
                                            .copies = copies,
                                            .first_moments = floats(DevicePart::kFirstMoments),
                                            .second_moments = floats(DevicePart::kSecondMoments)},
                                           options_.optimizer, options_.device, *ops_));
  TRY_ASSIGN(norm_, optim::GradientNorm::create(config, store_->arena(), sink_->gradients(),
                                                options_.device, *ops_,
                                                part_of(*arena_, DevicePart::kNorm)));
  scalars_.emplace(StepScalars::Memory{.device = part_of(*arena_, DevicePart::kScalars).data,
                                       .pinned = part_of(*pinned_, PinnedPart::kScalars).data});
  state_layout_.emplace(config, options_.mesh);
  transfer_.emplace(stream_, HostTransfer::Buffers{part_of(*pinned_, PinnedPart::kFirstPiece),
                                                   part_of(*pinned_, PinnedPart::kSecondPiece)});
  return {};
}

Result<model::MicroBatch> Composition::make_micro_batch(PassMode mode) {
  return model_->make_micro_batch(micro_batch_shape(options_, mode),
                                  part_of(*arena_, DevicePart::kActivations));
}

// The micro-batches that train and evaluate share their memory: no step is under way during an
// evaluation.
Status Composition::build_executor() {
  const PipelineShape shape{.kind = PipelineKind::kNaive,
                            .stages = options_.mesh.pipeline,
                            .micro_batches = options_.micro_batches};
  TRY_ASSIGN(PipelineSchedule schedule, pipeline_schedule(shape));
  const std::vector<std::string> problems = schedule_problems(shape, schedule);
  CHECK(problems.empty());
  TRY_ASSIGN(model::MicroBatch trained, make_micro_batch(PassMode::kTrain));
  const int64_t rows = micro_batch_shape(options_, PassMode::kTrain).rows();
  const auto tokens = static_cast<double>(rows * options_.micro_batches * options_.mesh.data);
  executor_.emplace(
      ScheduleExecutor::Options{.actions = schedule[static_cast<size_t>(place_.pipeline)],
                                .sequence = options_.sequence,
                                .gradient_scale = static_cast<float>(1.0 / tokens)},
      std::move(trained),
      ScheduleExecutor::Parts{*model_, *store_, *sink_, *scalars_, *ops_, *timer_});
  TRY_ASSIGN(evaluated_, make_micro_batch(PassMode::kEvaluate));
  return {};
}

TokenMemory Composition::token_memory(size_t slot) const {
  CHECK(slot < kTokenSlots);
  return {.device = arena_->workspace(static_cast<size_t>(DevicePart::kTokens) + slot),
          .pinned = pinned_->workspace(static_cast<size_t>(PinnedPart::kTokens) + slot)};
}

std::vector<float*> Composition::state_kinds() {
  return {store_->parameters(), optimizer_->first_moments(), optimizer_->second_moments()};
}

StateStream Composition::state_stream() {
  return {world_,
          *state_layout_,
          {.arena = store_->arena(), .kinds = state_kinds(), .transfer = *transfer_}};
}

Status Composition::collect_state(StateSink* sink) {
  return state_stream().collect(sink);
}

Status Composition::load_state(StateSource* source, int64_t step) {
  const size_t kinds = step > 0 ? state_kinds().size() : 1;
  TRY(state_stream().distribute(source, kinds));
  return broadcast_state(step);
}

Status Composition::broadcast_state(int64_t step) {
  std::vector<float*> kinds = state_kinds();
  if (step == 0) kinds.resize(1);
  for (float* kind : kinds) {
    if (data_group_->size() == 1) break;
    TRY(data_group_->broadcast({.data = kind,
                                .count = store_->arena().count,
                                .device = options_.device,
                                .stream = stream_.handle()},
                               0));
  }
  optimizer_->refresh_copies(stream_, step);
  return {};
}

DeviceState Composition::state() {
  return {.arena = &store_->arena(),
          .parameters = store_->parameters(),
          .first_moments = optimizer_->first_moments(),
          .second_moments = optimizer_->second_moments()};
}

Status Composition::initialise(uint64_t seed) {
  const std::vector<ArenaEntry>& entries = store_->arena().entries;
  std::vector<ValueRun> runs;
  runs.reserve(entries.size());
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

void Composition::update(const StepRequest& request) {
  StepValues* values = scalars_->on_device();
  norm_->squared(stream_, values->squares);
  // Without clipping a norm that isn't finite stops the update all the same.
  const double no_clipping = std::numeric_limits<double>::max();
  ops_->clip_scale(stream_, {.squares = values->squares,
                             .count = 2,
                             .scale = &values->scale,
                             .clip_norm = request.clip_norm > 0 ? request.clip_norm : no_clipping});
  optimizer_->step(stream_, {.learning_rate = request.learning_rate,
                             .device_scale = &values->scale,
                             .step = request.step});
}

Result<StepReport> Composition::run_step(BatchFeed& feed, const StepRequest& request) {
  TRY(timer_->begin());
  scalars_->clear(*ops_, stream_);
  sink_->begin_step(*ops_);
  TRY(timer_->lap(StepPart::kUpdate));  // which begins with zeroes
  TRY(executor_->run(feed, [&] { update(request); }));
  // Before the host waits for a stream that may stand behind a reduction.
  TRY(sink_->wait());
  TRY_ASSIGN(const StepValues values, scalars_->read(stream_));
  const int64_t rows = micro_batch_shape(options_, PassMode::kTrain).rows();
  TRY_ASSIGN(const WorldTotals totals, add_up(world_, options_.mesh,
                                              {.loss_sum = values.loss_sum,
                                               .tokens = rows * options_.micro_batches,
                                               .stop = request.stop ? 1 : 0}));
  StepReport report{.numbers = {.loss = totals.loss, .gradient_norm = values.norm()},
                    .stop = totals.stop};
  TRY(timer_->end(report.numbers));
  return report;
}

Status Composition::add_losses_of(const DeviceBatch& batch) {
  TRY(model_->begin(*evaluated_, {.tokens = batch.tokens,
                                  .targets = batch.targets,
                                  .batch = batch.rows,
                                  .sequence = options_.sequence}));
  TRY(model::forward_pass(*model_, *store_, *evaluated_));
  scalars_->add_losses(*ops_, stream_, *evaluated_);
  return {};
}

Result<std::optional<double>> Composition::evaluate(BatchFeed& feed,
                                                    const std::function<bool()>& stop_requested) {
  RankTotals mine;
  scalars_->clear(*ops_, stream_);
  while (true) {
    TRY_ASSIGN(const std::optional<DeviceBatch> batch, feed.next());
    if (!batch) break;
    mine.stop = stop_requested() ? 1 : 0;
    if (mine.stop != 0) break;
    TRY(add_losses_of(*batch));
    mine.tokens += batch->counted;
  }
  TRY_ASSIGN(const StepValues values, scalars_->read(stream_));
  mine.loss_sum = values.loss_sum;
  TRY_ASSIGN(const WorldTotals totals, add_up(world_, options_.mesh, mine));
  return totals.stop ? std::optional<double>() : std::optional(totals.loss);
}

Result<std::optional<std::vector<int32_t>>> Composition::generate(model::GenerateOptions options) {
  if (place_.data != 0) return std::optional<std::vector<int32_t>>();
  options.memory = {.device = part_of(*arena_, DevicePart::kActivations),
                    .pinned = part_of(*pinned_, PinnedPart::kSample)};
  TRY_ASSIGN(std::vector<int32_t> tokens, model::generate(*model_, *store_, options));
  return std::optional(std::move(tokens));
}

}  // namespace lockstep::parallel
