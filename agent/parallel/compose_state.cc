// The state of a Composition: its initial values, and its way from and to sources, sinks and peers.
#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/model/init.h"
#include "agent/parallel/compose.h"
#include "agent/parallel/exchange_memory.h"
#include "agent/parallel/shard/shard_memory.h"

namespace lockstep::parallel {
namespace {

// Returns the part of a rank's shard that one of its replicas saves.
StateLayout::ShardRange share_in(const StateLayout& layout, Exchange exchange, int64_t rank,
                                 int64_t replica) {
  if (state_holders(exchange) != StateHolders::kFirstRank) return layout.share(rank, replica);
  return {0, replica == 0 ? layout.shards(rank).shard_count() : 0};
}

}  // namespace

HeldState Composition::held_state(HostTransfer& transfer) const {
  const bool is_arena = has_all_parameters() && shards().ranks() > 1;
  HeldState held{.slices = shards().slices(state_layout_->shard_index(world_.rank())),
                 .kinds = {{.values = parameters(), .is_arena = is_arena}},
                 .transfer = transfer};
  if (far_parameters_.count() > 0) held.kinds[0].far = &far_parameters_;
  for (const optim::OptimizerState& state : exchange_->states()) {
    const FarMemory& far = far_states_[held.kinds.size() - 1];
    held.kinds.push_back({.values = state.values, .far = far.count() > 0 ? &far : nullptr});
  }
  return held;
}

const kernels::Bf16* Composition::copies() const {
  return bf16_of(DevicePart::kCopies);
}

std::vector<std::string> Composition::optimizer_states() const {
  std::vector<std::string> names;
  for (const optim::StateKind& kind : optim::state_kinds(options_.optimizer)) {
    names.emplace_back(kind.name);
  }
  return names;
}

StateStream Composition::state_stream() {
  return {world_, *state_layout_, held_state()};
}

StateLayout::ShardRange Composition::share_of(int64_t replica) const {
  return share_in(*state_layout_, options_.exchange, world_.rank(), replica);
}

Status Composition::replicate(size_t kind, const StateLayout::ShardRange& range, int root) {
  if (range.count() == 0 || replicas_->size() == 1) return {};
  const HeldState held = held_state();
  // Far memory is the host's.
  const bool is_far = held.kinds[kind].far != nullptr;
  for (const ValueRun& run : held.runs(kind, range.begin, range.count())) {
    TRY(replicas_->broadcast({.data = run.data,
                              .count = run.count,
                              .device = is_far ? kernels::Device() : options_.device,
                              .stream = is_far ? nullptr : stream_.handle()},
                             root));
  }
  held.give_back(kind);
  return {};
}

Status Composition::parameters_written(int64_t step) {
  if (casts_ && has_all_parameters()) {
    casts_->make_all(stream_, parameters(), bf16_of(DevicePart::kCopies), step);
  }
  TRY(exchange_->parameters_written(step));
  held_state().give_back(0);
  TRY(store_->updated(step));
  return store_->settle();
}

Status Composition::pull_parameters(int64_t step) {
  CHECK(options_.exchange == Exchange::kServers);
  TRY(store_->updated(step));
  return store_->settle();
}

Status Composition::load_parameters(StateSource* source) {
  TRY(state_stream().distribute(source, 1));
  return broadcast_state(0);
}

Status Composition::broadcast_state(int64_t step) {
  size_t kinds = held_state().kinds.size();
  if (step == 0 || state_holders(options_.exchange) != StateHolders::kEveryRank) kinds = 1;
  for (size_t kind = 0; kind < kinds; ++kind) {
    TRY(replicate(kind, {0, shards().shard_count()}, 0));
  }
  return parameters_written(step);
}

void Composition::reserve_snapshot() {
  snapshot_.emplace(my_share(), held_state().kinds.size());
}

Status Composition::take_snapshot() {
  CHECK(snapshot_.has_value());
  return snapshot_->take(held_state());
}

StateShare Composition::snapshot() const {
  CHECK(snapshot_.has_value());
  const StateLayout::ShardRange mine = my_share();
  return {.pieces = state_layout_->pieces_within(world_.rank(), mine, /*owned_only=*/true),
          .shard_begin = mine.begin,
          .kinds = snapshot_->kinds()};
}

uint64_t Composition::share_values() const {
  const size_t kinds = 1 + exchange_->states().size();
  return static_cast<uint64_t>(my_share().count()) * kinds;
}

Status Composition::copy_share(std::span<float> to) {
  CHECK(copy_transfer_.has_value());
  CHECK(to.size() == share_values());
  std::vector<float*> kinds;
  const StateLayout::ShardRange mine = my_share();
  for (size_t kind = 0; kind < 1 + exchange_->states().size(); ++kind) {
    kinds.push_back(to.data() + static_cast<int64_t>(kind) * mine.count());
  }
  return copy_range(
      held_state(*copy_transfer_), mine, kinds,
      [](std::span<const float> from, float* kind) { std::copy(from.begin(), from.end(), kind); });
}

Status Composition::restore_share(std::span<const float> from) {
  CHECK(from.size() == share_values());
  const StateLayout::ShardRange mine = my_share();
  const HeldState held = held_state();
  for (size_t kind = 0; kind < held.kinds.size(); ++kind) {
    const float* next = from.data() + static_cast<int64_t>(kind) * mine.count();
    TRY(transfer_->write(held.runs(kind, mine.begin, mine.count()),
                         [&](size_t, int64_t, std::span<float> to) {
                           std::copy(next, next + to.size(), to.begin());
                           next += to.size();
                           return Status();
                         }));
    held.give_back(kind);
  }
  return {};
}

Composition::ForeignShare Composition::foreign_share(const OtherLayout& layout, int64_t rank) {
  if (!other_layout_ || other_layout_->first != layout) {
    ComposeOptions theirs = options_;
    theirs.mesh.data = layout.data;
    theirs.sharding.ranks = layout.shard_ranks;
    other_layout_.emplace(layout, StateLayout(theirs.design, theirs.mesh, shard_cut(theirs)));
  }
  const StateLayout& states = other_layout_->second;
  const StateLayout::ShardRange range =
      share_in(states, options_.exchange, rank, states.replica(rank));
  const size_t kinds = 1 + optim::state_kinds(options_.optimizer).size();
  ForeignShare share;
  share.values_ = range.count() == 0 ? 0 : static_cast<uint64_t>(range.count()) * kinds;
  for (size_t kind = 0; kind < kinds; ++kind) {
    const uint64_t begin = kind * static_cast<uint64_t>(range.count());
    for (const auto& piece : states.pieces_within(rank, range, /*owned_only=*/true)) {
      for (const ShardRun& run : piece.runs) {
        share.runs_.push_back({.at = begin + static_cast<uint64_t>(run.local - range.begin),
                               .count = run.count,
                               .kind = kind,
                               .id = piece.id,
                               .global = run.global});
      }
    }
  }
  std::ranges::sort(share.runs_, {}, &ForeignShare::Run::at);
  return share;
}

std::vector<Composition::HeldPart> Composition::held_parts(const ForeignShare& share,
                                                           uint64_t first, uint64_t count) const {
  const size_t kinds = 1 + exchange_->states().size();
  const uint64_t end = first + count;
  auto run = std::ranges::upper_bound(share.runs_, first, {}, [](const ForeignShare::Run& each) {
    return each.at + static_cast<uint64_t>(each.count);
  });
  std::vector<HeldPart> parts;
  int64_t id = -1;
  std::vector<ShardRun> mine;  // of that parameter
  for (; run != share.runs_.end() && run->at < end; ++run) {
    if (run->kind >= kinds) break;  // only the first rank has states
    if (std::exchange(id, run->id) != run->id) {
      mine = state_layout_->pieces(state_layout_->table()[static_cast<size_t>(id)], world_.rank());
    }
    const uint64_t from = std::max(run->at, first);
    const uint64_t to = std::min(run->at + static_cast<uint64_t>(run->count), end);
    const int64_t global = run->global + static_cast<int64_t>(from - run->at);
    const int64_t global_end = global + static_cast<int64_t>(to - from);
    for (const ShardRun& piece : runs_within(mine, global, global_end)) {
      parts.push_back({.at = from - first + static_cast<uint64_t>(piece.global - global),
                       .kind = run->kind,
                       .local = piece.local,
                       .count = piece.count});
    }
  }
  return parts;
}

Status Composition::take(const ForeignShare& share, uint64_t first, std::span<const float> part) {
  const HeldState held = held_state();
  for (const HeldPart& mine : held_parts(share, first, part.size())) {
    const float* next = part.data() + mine.at;
    TRY(transfer_->write(held.runs(mine.kind, mine.local, mine.count),
                         [&](size_t, int64_t, std::span<float> values) {
                           std::copy(next, next + values.size(), values.begin());
                           next += values.size();
                           return Status();
                         }));
  }
  for (size_t kind = 0; kind < held.kinds.size(); ++kind) held.give_back(kind);
  return {};
}

Status Composition::read_share(StateSource& source) {
  const std::vector<StateLayout::ShardPiece> pieces =
      state_layout_->pieces_within(world_.rank(), my_share(), /*owned_only=*/false);
  const HeldState held = held_state();
  for (size_t kind = 0; kind < held.kinds.size(); ++kind) {
    for (const StateLayout::ShardPiece& piece : pieces) {
      const Parameter& parameter = state_layout_->table()[static_cast<size_t>(piece.id)];
      std::vector<ValueRun> runs;
      std::vector<int64_t> globals;
      for (const ShardRun& run : piece.runs) {
        int64_t global = run.global;
        for (const ValueRun& part : held.runs(kind, run.local, run.count)) {
          runs.push_back(part);
          globals.push_back(global);
          global += part.count;
        }
      }
      TRY(transfer_->write(runs, [&](size_t run, int64_t first, std::span<float> to) {
        return source.read({parameter, kind}, globals[run] + first, to);
      }));
      held.give_back(kind);
    }
  }
  return {};
}

Status Composition::clear_share() {
  const StateLayout::ShardRange mine = my_share();
  const HeldState held = held_state();
  for (size_t kind = 0; kind < held.kinds.size(); ++kind) {
    TRY(transfer_->write(held.runs(kind, mine.begin, mine.count()),
                         [](size_t, int64_t, std::span<float> to) {
                           std::fill(to.begin(), to.end(), 0.0f);
                           return Status();
                         }));
    held.give_back(kind);
  }
  return {};
}

Status Composition::exchange_shares(int64_t step) {
  size_t kinds = held_state().kinds.size();
  if (state_holders(options_.exchange) != StateHolders::kEveryRank) kinds = 1;
  for (size_t kind = 0; kind < kinds; ++kind) {
    for (int root = 0; root < replicas_->size(); ++root) {
      TRY(replicate(kind, share_of(root), root));
    }
  }
  return parameters_written(step);
}

DeviceState Composition::state() {
  return {.arena = &shards().arena(),
          .parameters = parameters(),
          .optimizer = {exchange_->states().begin(), exchange_->states().end()}};
}

// A rank with all parameters draws all of them.
Status Composition::initialise(uint64_t seed) {
  const std::vector<ArenaEntry>& entries = shards().arena().entries;
  const std::vector<ShardSlice> whole{{.count = shards().arena().count}};
  const std::vector<ShardSlice> slices =
      has_all_parameters() ? whole : shards().slices(state_layout_->shard_index(world_.rank()));
  std::vector<ValueRun> runs;
  std::vector<std::pair<size_t, int64_t>> begins;  // of each run: entry, and element in it
  for (size_t i = 0; i < entries.size(); ++i) {
    const int64_t begin = entries[i].offset;
    for (const ShardSlice& slice : offsets_within(slices, begin, begin + entries[i].count)) {
      runs.push_back({parameters() + slice.local, slice.count});
      begins.emplace_back(i, slice.offset - begin);
    }
  }
  const std::vector<Parameter> table = parameter_table(options_.design);
  TRY(transfer_->write(runs, [&](size_t run, int64_t first, std::span<float> to) {
    const ArenaEntry& entry = entries[begins[run].first];
    lockstep::model::initialise({.parameter = table[static_cast<size_t>(entry.id)],
                                 .entry = entry,
                                 .shard = region().shard(),
                                 .layers = residual_layers(options_.design),
                                 .seed = seed},
                                begins[run].second + first, to);
    return Status();
  }));
  return parameters_written(0);
}

}  // namespace lockstep::parallel
