// The parts of a Composition that concern stages: channels, tied embeddings, executor.
#include <string>
#include <utility>
#include <vector>

#include "agent/parallel/compose.h"
#include "agent/parallel/tied_exchange.h"
#include "common/layout/pipeline_schedule.h"

namespace lockstep::parallel {

Status Composition::build_links() {
  if (options_.mesh.pipeline == 1) return {};
  TRY_ASSIGN(comm::Communicator* const stages, groups_->of(Axis::kPipeline));
  TRY(make_stage_links(*stages,
                       {.is_ring = is_ring(options_),
                        .travelling = transfer_dtype(options_),
                        .message_bytes = message_bytes(options_),
                        .memory = memory_of(DevicePart::kMessages)},
                       *ops_, stream_, links_));
  relay_.emplace(links_, *stages);
  return {};
}

Status Composition::tie_stages() {
  const ArenaEntry* const tokens = shards().arena().find(kTokenEmbedding);
  const int64_t stages = options_.mesh.pipeline;
  if (stages == 1 || tokens == nullptr || !is_tied(options_.design)) return {};
  TRY_ASSIGN(comm::Communicator* const all, groups_->of(Axis::kPipeline));
  TRY_ASSIGN(std::unique_ptr<comm::Communicator> pair,
             all->sub_group({0, static_cast<int>(stages - 1)}));
  const bool keeps_shard = options_.sharding.sharding >= Sharding::kGradients;
  const std::vector<ShardSlice> slices = shards().slices(state_layout_->shard_index(world_.rank()));
  std::vector<TiedExchange::Gradients> gradients;
  for (const ShardSlice& slice :
       offsets_within(slices, tokens->offset, tokens->offset + tokens->count)) {
    const int64_t place = keeps_shard ? slice.local : slice.offset;
    gradients.push_back({floats_of(DevicePart::kGradients) + place, slice.count});
  }
  exchange_ =
      std::make_unique<TiedExchange>(TiedExchange::Options{.inner = std::move(exchange_),
                                                           .pair = std::move(pair),
                                                           .gradients = std::move(gradients)},
                                     stream_);
  return {};
}

Result<std::vector<ScheduleExecutor::Chunk>> Composition::make_chunks() {
  const kernels::Workspace memory = memory_of(DevicePart::kActivations);
  const std::vector<int64_t> in_flight = micro_batches_in_flight(options_);
  size_t used = 0;
  std::vector<ScheduleExecutor::Chunk> chunks;
  for (size_t i = 0; i < models_.size(); ++i) {
    const Stage& stage = models_[i]->stage();
    chunks.push_back({.model = *models_[i],
                      .micro_batches = {},
                      .edges = {.input = edge_count(options_, stage.begin),
                                .output = edge_count(options_, stage.end)}});
    for (int64_t place = 0; place < in_flight[i]; ++place) {
      const kernels::Workspace rest{static_cast<std::byte*>(memory.data) + used,
                                    memory.bytes - used};
      TRY_ASSIGN(std::unique_ptr<model::MicroBatch> batch,
                 models_[i]->new_micro_batch(micro_batch_shape(options_, PassMode::kTrain), rest));
      chunks.back().micro_batches.push_back(std::move(batch));
      used += activation_bytes(options_, stage, kernels_);
    }
  }
  return chunks;
}

// Returns the places of the rank's micro-batches among the samples of a step, which are shared
// evenly: all ranks' first micro-batches come first.
std::vector<int64_t> Composition::first_samples() const {
  if (!options_.first_samples.empty()) return options_.first_samples;
  std::vector<int64_t> places;
  for (int64_t i = 0; i < options_.micro_batches; ++i) {
    places.push_back((i * options_.mesh.data + options_.place.data) * options_.micro_batch);
  }
  return places;
}

// The micro-batches that train and evaluate share their memory: no step is under way during an
// evaluation.
Status Composition::build_executor() {
  actions_ = make_step_actions(pipeline_shape(options_), options_.place.pipeline);
  TRY_ASSIGN(std::vector<ScheduleExecutor::Chunk> chunks, make_chunks());
  const bool is_even = options_.samples.empty();
  const int64_t samples =
      options_.counted_samples > 0 ? options_.counted_samples : options_.step_samples;
  const auto counted = static_cast<double>(is_even ? counted_per_step() * options_.mesh.data
                                                   : samples * batch_design_.counted);
  const auto micro_batches = static_cast<size_t>(options_.micro_batches);
  const int64_t even_samples = options_.micro_batches * options_.micro_batch * options_.mesh.data;
  ScheduleExecutor::Options options{
      .batch = batch_design_,
      .micro_batches = options_.micro_batches,
      .samples = is_even ? std::vector(micro_batches, options_.micro_batch) : options_.samples,
      .first_samples = first_samples(),
      .step_samples = is_even ? even_samples : options_.step_samples,
      .splits_backward = splits_backward(options_),
      .gradient_scale = static_cast<float>(1.0 / counted),
      .observe = options_.observe_micro_batch};
  const size_t bytes = data_bytes(options_);
  auto* const data = static_cast<std::byte*>(memory_of(DevicePart::kData).data);
  for (int64_t i = 0; bytes > 0 && i < data_places(options_); ++i) {
    options.data.push_back({data + static_cast<size_t>(i) * bytes, bytes});
  }
  executor_.emplace(
      std::move(options), std::move(chunks),
      ScheduleExecutor::Parts{*store_, *exchange_, *scalars_, *ops_, stream_, *timer_, links_});
  for (const std::unique_ptr<model::Model>& model : models_) {
    TRY_ASSIGN(std::unique_ptr<model::MicroBatch> batch,
               model->new_micro_batch(micro_batch_shape(options_, PassMode::kEvaluate),
                                      memory_of(DevicePart::kActivations)));
    evaluated_.push_back(std::move(batch));
  }
  return build_totals();
}

// Ranks whose steps overlap come to a step's totals and to other collectives of the world in
// different orders, so totals have a group of their own.
Status Composition::build_totals() {
  if (steps_overlap(options_)) {
    TRY_ASSIGN(totals_group_, world_.twin());
  }
  totals_.emplace(totals_group_ ? *totals_group_ : world_, options_.mesh, actions_->delay());
  return {};
}

}  // namespace lockstep::parallel
