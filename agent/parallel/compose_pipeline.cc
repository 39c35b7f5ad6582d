// The parts of a Composition that concern stages: channels, tied embeddings, executor.
#include <string>
#include <utility>
#include <vector>

#include "agent/parallel/compose.h"
#include "agent/parallel/tied_exchange.h"
#include "common/layout/pipeline_schedule.h"

namespace lockstep::parallel {
// The two stages of a link make it at the same time. Each stage makes its links in the order of
// their first stages, so that none waits for another one in a ring, whose last link is that of the
// last stage with the first one.
Status Composition::build_links() {
  const int64_t stages = options_.mesh.pipeline;
  if (stages == 1) return {};
  const int64_t before = (options_.place.pipeline + stages - 1) % stages;
  size_t index = 0;
  for (int64_t link = 0; link < stages; ++link) {
    if (link == before && has_stage_before(options_)) {
      TRY_ASSIGN(links_.activations_in, make_channel(link, index++, false));
      TRY_ASSIGN(links_.gradients_out, make_channel(link, index++, true));
    }
    if (link == options_.place.pipeline && has_stage_after(options_)) {
      TRY_ASSIGN(links_.activations_out, make_channel(link, index++, true));
      TRY_ASSIGN(links_.gradients_in, make_channel(link, index++, false));
    }
  }
  TRY_ASSIGN(comm::Communicator* const all, groups_->of(Axis::kPipeline));
  relay_.emplace(links_, *all);
  return {};
}

// Makes a channel between a stage and the next one; the index-th of this rank.
Result<StageChannel*> Composition::make_channel(int64_t stage, size_t index, bool sends) {
  TRY_ASSIGN(comm::Communicator* const stages, groups_->of(Axis::kPipeline));
  TRY_ASSIGN(std::unique_ptr<comm::Communicator> pair,
             stages->sub_group({static_cast<int>(stage),
                                static_cast<int>((stage + 1) % options_.mesh.pipeline)}));
  const size_t bytes = message_bytes(options_);
  const auto slots = static_cast<size_t>(channel_slots(pipeline_shape(options_)));
  auto* memory =
      static_cast<std::byte*>(memory_of(DevicePart::kMessages).data) + slots * index * bytes;
  std::vector<kernels::Workspace> buffers;
  for (size_t i = 0; i < slots; ++i, memory += bytes) buffers.push_back({memory, bytes});
  TRY_ASSIGN(std::unique_ptr<StageChannel> channel,
             StageChannel::create({.pair = std::move(pair),
                                   .sends = sends,
                                   .travelling = transfer_dtype(options_),
                                   .buffers = std::move(buffers)},
                                  *ops_, stream_));
  links_.channels.push_back(std::move(channel));
  return links_.channels.back().get();
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
    chunks.push_back({*models_[i], {}});
    for (int64_t place = 0; place < in_flight[i]; ++place) {
      const kernels::Workspace rest{static_cast<std::byte*>(memory.data) + used,
                                    memory.bytes - used};
      TRY_ASSIGN(std::unique_ptr<model::MicroBatch> batch,
                 models_[i]->new_micro_batch(micro_batch_shape(options_, PassMode::kTrain), rest));
      chunks.back().micro_batches.push_back(std::move(batch));
      used += activation_bytes(options_, models_[i]->stage(), attention_);
    }
  }
  return chunks;
}

// The micro-batches that train and evaluate share their memory: no step is under way during an
// evaluation.
Status Composition::build_executor() {
  actions_ = make_step_actions(pipeline_shape(options_), options_.place.pipeline);
  TRY_ASSIGN(std::vector<ScheduleExecutor::Chunk> chunks, make_chunks());
  const auto counted = static_cast<double>(counted_per_step() * options_.mesh.data);
  ScheduleExecutor::Options options{.batch = batch_design_,
                                    .micro_batches = options_.micro_batches,
                                    .samples = options_.micro_batch,
                                    .splits_backward = splits_backward(options_),
                                    .edge_count = edge_count(options_),
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
