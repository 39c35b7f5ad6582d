#include "agent/parallel/compose.h"

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "agent/model/make_model.h"
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

std::array<float*, optim::kStatesMax> states_of(const kernels::Arena& arena) {
  std::array<float*, optim::kStatesMax> states{};
  for (size_t i = 0; i < states.size(); ++i) {
    states[i] = static_cast<float*>(arena.at(static_cast<size_t>(DevicePart::kStates) + i));
  }
  return states;
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
  const std::optional<kernels::AttentionShape> shape =
      model::attention_of(options_.design, micro_batch_shape(options_, PassMode::kTrain));
  if (!shape) return invalid("[compose] expected a model with attention for cuDNN's kernels");
  model::AttentionChoice choice{.by = options_.attention, .shape = *shape};
  TRY_ASSIGN(choice.workspace_bytes,
             kernels::dnn::prepare_attention(options_.device, choice.shape));
  return choice;
}

Status Composition::build_model() {
  TRY_ASSIGN(attention_, prepare_attention());
  TRY_ASSIGN(model_,
             model::make_model(model_options(options_, attention_), *ops_, stream_, region_));
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
                      .tables = part_of(*arena_, DevicePart::kTables)});
  return {};
}

Status Composition::build_parts() {
  const auto floats = [this](DevicePart part) {
    return static_cast<float*>(part_of(*arena_, part).data);
  };
  auto* copies = static_cast<kernels::Bf16*>(part_of(*arena_, DevicePart::kCopies).data);
  store_.emplace(ReplicatedStoreOptions{.design = options_.design,
                                        .stage = model_->stage(),
                                        .shard = region_.shard(),
                                        .parameters = floats(DevicePart::kParameters),
                                        .copies = copies});
  TRY_ASSIGN(sink_, BucketedSink::create({.arena = store_->arena(),
                                          .bucket_bytes = options_.bucket_bytes,
                                          .gradients = floats(DevicePart::kGradients)},
                                         *data_group_,
                                         {.compute = &stream_, .communication = &reductions_}));
  TRY_ASSIGN(optimizer_, optim::Optimizer::create(options_.design, store_->arena(),
                                                  {.parameters = store_->parameters(),
                                                   .gradients = sink_->gradients(),
                                                   .copies = copies,
                                                   .states = states_of(*arena_)},
                                                  options_.optimizer, options_.device, *ops_));
  norm_ = optim::GradientNorm::create(options_.design, store_->arena(), sink_->gradients(), *ops_);
  scalars_.emplace(StepScalars::Memory{.device = part_of(*arena_, DevicePart::kScalars).data,
                                       .pinned = part_of(*pinned_, PinnedPart::kScalars).data});
  state_layout_.emplace(options_.design, options_.mesh);
  transfer_.emplace(stream_, HostTransfer::Buffers{part_of(*pinned_, PinnedPart::kFirstPiece),
                                                   part_of(*pinned_, PinnedPart::kSecondPiece)});
  return {};
}

Result<std::unique_ptr<model::MicroBatch>> Composition::make_micro_batch(PassMode mode) {
  return model_->new_micro_batch(micro_batch_shape(options_, mode),
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
  TRY_ASSIGN(std::unique_ptr<model::MicroBatch> trained, make_micro_batch(PassMode::kTrain));
  const auto counted = static_cast<double>(counted_per_step() * options_.mesh.data);
  executor_.emplace(
      ScheduleExecutor::Options{.actions = schedule[static_cast<size_t>(place_.pipeline)],
                                .counted = batch_design_.counted,
                                .gradient_scale = static_cast<float>(1.0 / counted)},
      std::move(trained),
      ScheduleExecutor::Parts{*model_, *store_, *sink_, *scalars_, *ops_, stream_, *timer_});
  TRY_ASSIGN(evaluated_, make_micro_batch(PassMode::kEvaluate));
  return {};
}

BatchMemory Composition::batch_memory(size_t slot) const {
  CHECK(slot < kBatchSlots);
  return {.device = arena_->workspace(static_cast<size_t>(DevicePart::kBatches) + slot),
          .pinned = pinned_->workspace(static_cast<size_t>(PinnedPart::kBatches) + slot)};
}

Status Composition::update(const StepRequest& request) {
  StepValues* values = scalars_->on_device();
  norm_->add_squares(stream_, &values->squares);
  TRY(add_up_squares(*groups_, options_.mesh,
                     {.sum = &values->squares, .device = options_.device, .stream = stream_}));
  // Without clipping a norm that isn't finite stops the update all the same.
  const double no_clipping = std::numeric_limits<double>::max();
  ops_->clip_scale(stream_, {.squares = &values->squares,
                             .scale = &values->scale,
                             .clip_norm = request.clip_norm > 0 ? request.clip_norm : no_clipping});
  optimizer_->step(stream_, {.learning_rate = request.learning_rate,
                             .device_scale = &values->scale,
                             .step = request.step});
  return {};
}

Result<StepReport> Composition::run_step(BatchFeed& feed, const StepRequest& request) {
  TRY(timer_->begin());
  scalars_->clear(*ops_, stream_);
  sink_->begin_step(*ops_);
  TRY(timer_->lap(StepPart::kUpdate));  // which begins with zeroes
  TRY(executor_->run(feed, [&] { return update(request); }));
  // Before the host waits for a stream that may stand behind a reduction.
  TRY(sink_->wait());
  TRY_ASSIGN(const StepValues values, scalars_->read(stream_));
  TRY_ASSIGN(const WorldTotals totals, add_up(world_, options_.mesh,
                                              {.loss_sum = values.loss_sum,
                                               .counted = counted_per_step(),
                                               .stop = request.stop ? 1 : 0,
                                               .busy = request.busy ? 1 : 0}));
  StepReport report{.numbers = {.loss = totals.loss, .gradient_norm = values.norm()},
                    .stop = totals.stop,
                    .busy = totals.busy};
  TRY(timer_->end(report.numbers));
  return report;
}

Status Composition::add_results_of(const DeviceBatch& batch) {
  TRY(evaluated_->begin({.batch = batch}));
  TRY(model::forward_pass(*model_, *store_, *evaluated_));
  scalars_->add_results(*ops_, stream_, *evaluated_);
  return {};
}

Result<std::optional<Evaluation>> Composition::evaluate(
    BatchFeed& feed, const std::function<bool()>& stop_requested) {
  RankTotals mine;
  scalars_->clear(*ops_, stream_);
  while (true) {
    TRY_ASSIGN(const std::optional<DeviceBatch> batch, feed.next());
    if (!batch) break;
    mine.stop = stop_requested() ? 1 : 0;
    if (mine.stop != 0) break;
    TRY(add_results_of(*batch));
    mine.counted += batch->counted;
  }
  TRY_ASSIGN(const StepValues values, scalars_->read(stream_));
  mine.loss_sum = values.loss_sum;
  mine.right = values.right;
  TRY_ASSIGN(const WorldTotals totals, add_up(world_, options_.mesh, mine));
  if (totals.stop) return std::optional<Evaluation>();
  Evaluation evaluation{.loss = totals.loss};
  if (batch_design_.has_accuracy) evaluation.accuracy = totals.accuracy;
  return std::optional(evaluation);
}

Result<std::optional<std::vector<int32_t>>> Composition::generate(model::GenerateOptions options) {
  if (place_.data != 0) return std::optional<std::vector<int32_t>>();
  options.memory = {.device = part_of(*arena_, DevicePart::kActivations),
                    .pinned = part_of(*pinned_, PinnedPart::kSample)};
  TRY_ASSIGN(std::vector<int32_t> tokens, model_->generate(*store_, options));
  return std::optional(std::move(tokens));
}

}  // namespace lockstep::parallel
