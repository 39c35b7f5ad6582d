// The state of a Composition: its initial values, and its way from and to sources, sinks and peers.
#include <span>
#include <string>
#include <vector>

#include "agent/model/init.h"
#include "agent/parallel/compose.h"

namespace lockstep::parallel {

std::vector<float*> Composition::state_kinds() {
  std::vector<float*> kinds{store_->parameters()};
  for (const optim::OptimizerState& state : optimizer_->states()) kinds.push_back(state.values);
  return kinds;
}

std::vector<std::string> Composition::optimizer_states() const {
  std::vector<std::string> names;
  for (const optim::OptimizerState& state : optimizer_->states()) names.emplace_back(state.name);
  return names;
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
          .optimizer = optimizer_->states()};
}

Status Composition::initialise(uint64_t seed) {
  const std::vector<ArenaEntry>& entries = store_->arena().entries;
  std::vector<ValueRun> runs;
  runs.reserve(entries.size());
  for (const ArenaEntry& entry : entries) {
    runs.push_back({store_->parameters() + entry.offset, entry.count});
  }
  const std::vector<Parameter> table = parameter_table(options_.design);
  TRY(transfer_->write(runs, [&](size_t run, int64_t first, std::span<float> to) {
    const ArenaEntry& entry = entries[run];
    lockstep::model::initialise({.parameter = table[static_cast<size_t>(entry.id)],
                                 .entry = entry,
                                 .shard = region_.shard(),
                                 .layers = residual_layers(options_.design),
                                 .seed = seed},
                                first, to);
    return Status();
  }));
  optimizer_->refresh_copies(stream_, 0);
  return {};
}

}  // namespace lockstep::parallel
