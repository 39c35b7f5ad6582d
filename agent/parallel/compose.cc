#include "agent/parallel/compose.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "agent/model/passes.h"
#include "agent/parallel/world_totals.h"

namespace lockstep::parallel {

Result<std::unique_ptr<Composition>> Composition::create(const ComposeOptions& options,
                                                         comm::Communicator& world,
                                                         const Clock& clock) {
  const Mesh& mesh = options.mesh;
  if (mesh.size() != world.size()) {
    return invalid("[compose] the mesh needs " + std::to_string(mesh.size()) +
                   " ranks, but the world has " + std::to_string(world.size()));
  }
  TRY(check(options));
  if (options.exchange == Exchange::kServers && options.remote == nullptr) {
    return invalid("[compose] expected the parameters on servers, got none");
  }
  ComposeOptions placed = options;
  placed.place = coordinates(mesh, world.rank());
  std::unique_ptr<Composition> composition(new Composition(world, placed));
  TRY(composition->build(clock));
  return composition;
}

// Finish pending work before freeing memory it may use.
Composition::~Composition() {
  if (store_ != nullptr) (void)store_->settle();
  (void)reductions_.synchronize();
  (void)gathers_.synchronize();
  (void)copies_stream_.synchronize();
  (void)stream_.synchronize();
}

BatchMemory Composition::batch_memory(size_t slot) const {
  CHECK(slot < kBatchSlots);
  return {.device = arena_->workspace(static_cast<size_t>(DevicePart::kBatches) + slot),
          .pinned = pinned_->workspace(static_cast<size_t>(PinnedPart::kBatches) + slot)};
}

Result<StepReport> Composition::run_step(BatchFeed& feed, const StepRequest& request) {
  if (steps_overlap(options_) && request.clip_norm > 0) {
    return invalid("[step] pipedream works only without clipping", Blame::kConfig);
  }
  const std::vector<Action>& actions =
      actions_->of(request.step, std::max(request.flush, request.step));
  TRY(timer_->begin(request.timeline));
  // First, since messages may already be on their way.
  TRY(executor_->announce(actions));
  scalars_->clear(*ops_, stream_);
  const UpdateRequest update{.step = request.step,
                             .first_update = request.first_update,
                             .learning_rate = request.learning_rate,
                             .clip_norm = request.clip_norm,
                             .values = scalars_->on_device()};
  exchange_->expect_update(update);
  exchange_->begin_step(*ops_);
  TRY(timer_->lap(StepPart::kUpdate));  // which begins with zeroes
  TRY(executor_->run(request.step, actions, feed, [&]() -> Status {
    if (request.before_update) TRY(request.before_update());
    TRY(store_->updating(request.step));
    TRY(exchange_->update(update));
    return store_->updated(request.step);
  }));
  // Before the host waits for a stream that may stand behind a collective.
  TRY(exchange_->wait());
  TRY(wait_for_streams());
  TRY_ASSIGN(const StepValues values, scalars_->read(stream_));
  // Before the update, stages that update together have added up their squares.
  const bool counts = steps_overlap(options_) || options_.place.pipeline == 0;
  TRY_ASSIGN(StepReport report,
             end_step(request.step, {.loss_sum = values.loss_sum,
                                     .counted = counted_per_step(),
                                     .stop = request.stop ? 1 : 0,
                                     .busy = request.busy ? 1 : 0,
                                     .squares = counts ? kernels::value_of(values.squares) : 0}));
  TRY(timer_->end(report.numbers));
  return report;
}

Result<StepReport> Composition::end_step(int64_t step, const RankTotals& mine) {
  TRY_ASSIGN(std::optional<LateTotals::Step> known, totals_->add(step, mine));
  const auto notice_stop = [&] {
    if (known && known->totals.stop) stops_ = true;
  };
  notice_stop();
  if (stops_ && known) actions_->flush_soon(known->step);
  StepReport report;
  if (actions_->is_flushed()) {
    TRY(links_.wait());
    TRY_ASSIGN(known, totals_->finish(known));
    notice_stop();
    report.stop = std::exchange(stops_, false);
  }
  if (!known) return report;
  report.numbers.loss = known->totals.loss;
  report.numbers.gradient_norm = std::sqrt(known->totals.squares);
  report.known_step = known->step;
  report.busy = known->totals.busy;
  return report;
}

Status Composition::wait_for_streams() {
  TRY(store_->wait());
  // Messages to a stage that is a step behind are under way.
  if (actions_->is_flushed()) TRY(links_.wait());
  if (shared_batch_) TRY(shared_batch_->wait());
  return shared_tensors_ ? shared_tensors_->wait() : Status();
}

Status Composition::add_results_of(const DeviceBatch& batch) {
  for (size_t i = 0; i < models_.size(); ++i) {
    const Stage& chunk = models_[i]->stage();
    model::MicroBatch& evaluated = *evaluated_[i];
    TRY(evaluated.begin({.batch = batch}));
    if (!is_first(chunk)) TRY(relay_->receive(evaluated));
    TRY(model::forward_pass(*models_[i], *store_, evaluated));
    if (!is_last(chunk)) TRY(relay_->send(evaluated));
    scalars_->add_results(*ops_, stream_, evaluated);
  }
  return {};
}

// Without a batch the others still need this rank's shards.
Status Composition::evaluate_one(const std::optional<DeviceBatch>& batch) {
  if (batch) return add_results_of(*batch);
  for (const int64_t block : blocks_of(chunks_of(options_))) {
    const model::BlockUse use{.block = block};
    TRY(store_->get(use));
    store_->release(use);
  }
  return {};
}

Result<std::optional<Evaluation>> Composition::evaluate(
    BatchFeed& feed, const std::function<bool()>& stop_requested) {
  RankTotals mine;
  scalars_->clear(*ops_, stream_);
  while (true) {
    TRY_ASSIGN(std::optional<DeviceBatch> batch, feed.next());
    if (batch && stop_requested()) mine.stop = 1;
    bool goes_on = batch.has_value() && mine.stop == 0;
    bool stops = mine.stop != 0;
    if (computes_together()) {
      TRY_ASSIGN(const WorldTotals all,
                 add_up(world_, options_.mesh, {.counted = goes_on ? 1 : 0, .stop = mine.stop}));
      stops = all.stop;
      goes_on = all.counted > 0;
    }
    if (stops || !goes_on) break;
    TRY(evaluate_one(batch));
    if (batch) mine.counted += batch->counted;
  }
  TRY(wait_for_streams());
  TRY_ASSIGN(const StepValues values, scalars_->read(stream_));
  mine.loss_sum = values.loss_sum;
  mine.right = values.right;
  mine.top_right = values.top_right;
  TRY_ASSIGN(const WorldTotals totals, add_up(world_, options_.mesh, mine));
  if (totals.stop) return std::optional<Evaluation>();
  Evaluation evaluation{.loss = totals.loss};
  if (batch_design_.has_accuracy) evaluation.accuracy = totals.accuracy;
  if (batch_design_.has_top5) evaluation.top5_accuracy = totals.top5_accuracy;
  return std::optional(evaluation);
}

Result<std::optional<std::vector<int32_t>>> Composition::generate(model::GenerateOptions options) {
  if (options_.place.data != 0 && !gathers_parameters())
    return std::optional<std::vector<int32_t>>();
  options.relay = relay_ ? &*relay_ : nullptr;
  for (size_t i = 1; i < models_.size(); ++i) options.later_chunks.push_back(models_[i].get());
  options.memory = {.device = memory_of(DevicePart::kActivations),
                    .pinned = memory_of(PinnedPart::kSample)};
  TRY_ASSIGN(std::vector<int32_t> tokens, models_.front()->generate(*store_, options));
  TRY(wait_for_streams());
  if (options_.place.data != 0) return std::optional<std::vector<int32_t>>();
  return std::optional(std::move(tokens));
}

}  // namespace lockstep::parallel
