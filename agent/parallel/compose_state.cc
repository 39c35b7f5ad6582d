// The state of a Composition: its initial values, and its way from and to sources, sinks and peers.
#include <algorithm>
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

Status Composition::load_parameters(StateSource* source) {
  TRY(state_stream().distribute(source, 1));
  return broadcast_state(0);
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

void Composition::reserve_snapshot() {
  snapshot_.emplace(share_of(place_.data), state_kinds().size());
}

Status Composition::take_snapshot() {
  CHECK(snapshot_.has_value());
  const std::vector<float*> kinds = state_kinds();
  return snapshot_->take(*transfer_, kinds);
}

StateShare Composition::snapshot() const {
  CHECK(snapshot_.has_value());
  const StateLayout::ArenaRange mine = share_of(place_.data);
  return {.pieces = state_layout_->pieces_within(world_.rank(), mine, /*owned_only=*/true),
          .arena_begin = mine.begin,
          .kinds = snapshot_->kinds()};
}

Status Composition::read_share(StateSource& source) {
  const std::vector<StateLayout::ArenaPiece> pieces =
      state_layout_->pieces_within(world_.rank(), share_of(place_.data), /*owned_only=*/false);
  const std::vector<float*> kinds = state_kinds();
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (const StateLayout::ArenaPiece& piece : pieces) {
      const Parameter& parameter = state_layout_->table()[static_cast<size_t>(piece.id)];
      std::vector<ValueRun> runs;
      for (const ShardRun& run : piece.runs) runs.push_back({kinds[kind] + run.local, run.count});
      TRY(transfer_->write(runs, [&](size_t run, int64_t first, std::span<float> to) {
        return source.read({parameter, kind}, piece.runs[run].global + first, to);
      }));
    }
  }
  return {};
}

Status Composition::clear_share() {
  const StateLayout::ArenaRange mine = share_of(place_.data);
  for (float* kind : state_kinds()) {
    const ValueRun run{kind + mine.begin, mine.count()};
    TRY(transfer_->write({&run, 1}, [](size_t, int64_t, std::span<float> to) {
      std::fill(to.begin(), to.end(), 0.0f);
      return Status();
    }));
  }
  return {};
}

Status Composition::exchange_shares(int64_t step) {
  for (float* kind : state_kinds()) {
    if (data_group_->size() == 1) break;
    for (int root = 0; root < data_group_->size(); ++root) {
      const StateLayout::ArenaRange share = share_of(root);
      TRY(data_group_->broadcast({.data = kind + share.begin,
                                  .count = share.count(),
                                  .device = options_.device,
                                  .stream = stream_.handle()},
                                 root));
    }
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
