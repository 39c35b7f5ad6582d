// States in memory that outlives the processes of ranks: kept after steps, resumed from by the next
// round.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/train/worker.h"
#include "common/base/log.h"
#include "common/base/sha256.h"

namespace lockstep::train {
namespace {

using States = std::array<KeptState, MemoryStates::kPlaces>;

// A share means the same in another round if all of this is the same there.
Digest identity_of(const WorkerConfig& config, const RunSettings& settings) {
  const WorldAssignment& world = config.world;
  WorldAssignment shape{.job_uid = world.job_uid,
                        .pipeline = world.pipeline,
                        .tensor = world.tensor,
                        .layout = world.layout};
  return sha256(dump_json({{"world", to_json(shape)},
                           {"precision", config.train.precision},
                           {"bucketBytes", config.train.bucketBytes},
                           {"settings", settings}}));
}

// A share that a rank has in memory, and the states of it.
struct KeptStates {
  KeptShare share;
  States states{};
};

// All that a rank has in memory: its own share, and the one that it keeps for another rank. Rank 0
// also tells the step of the newest checkpoint in storage.
struct Kept {
  KeptStates own;
  KeptStates held;
  int64_t stored = -1;
};

KeptStates kept_in(const std::optional<MemoryStates>& states) {
  return states ? KeptStates{.share = states->share(), .states = states->kept()} : KeptStates();
}

// Where all shares of a state are.
struct FoundState {
  KeptState state;
  parallel::Composition::OtherLayout layout;
  std::vector<StateSourceRank> sources;  // by rank of that layout
};

// Looks for the newest state of which every share is somewhere.
class KeptByAll {
 public:
  explicit KeptByAll(const std::vector<Kept>& ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      add(ranks[rank].own, {.rank = static_cast<int>(rank)});
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      add(ranks[rank].held, {.rank = static_cast<int>(rank), .is_held = true});
    }
  }

  // Prefers the model's own layout between two with the same step.
  std::optional<FoundState> newest(const parallel::Composition& model) const {
    std::optional<FoundState> found;
    for (const auto& [key, shares] : shares_) {
      const parallel::Composition::OtherLayout layout{key.data, key.shard_ranks};
      const int64_t ranks = model.ranks_of(layout);
      const bool is_whole =
          std::ssize(shares.sources) == ranks && shares.sources.rbegin()->first == ranks - 1;
      if (!is_whole) continue;
      const bool is_better = !found || key.step > found->state.step ||
                             (key.step == found->state.step && layout == model.layout());
      if (!is_better) continue;
      found = FoundState{.state = shares.state, .layout = layout, .sources = {}};
      for (const auto& [rank, source] : shares.sources) found->sources.push_back(source);
    }
    return found;
  }

 private:
  struct Key {
    int64_t step = 0;
    int64_t data = 0;
    int64_t shard_ranks = 0;

    auto operator<=>(const Key&) const = default;
  };
  struct Shares {
    KeptState state;
    std::map<int64_t, StateSourceRank> sources;  // by rank
  };

  // The first source of a share counts.
  void add(const KeptStates& kept, const StateSourceRank& source) {
    if (kept.share.rank < 0) return;
    for (const KeptState& state : kept.states) {
      if (state.step < 0) continue;
      Shares& shares = shares_[{state.step, kept.share.data, kept.share.shard_ranks}];
      shares.state = state;
      shares.sources.try_emplace(kept.share.rank, source);
    }
  }

  std::map<Key, Shares> shares_;
};

// Returns whether every rank that has a share of the state is the one that it belongs to, or that
// one's holder in this world. Then the files stay as they are.
bool is_in_place(const FoundState& found, const parallel::Composition& model,
                 const std::vector<Kept>& ranks) {
  if (found.layout != model.layout()) return false;
  for (size_t rank = 0; rank < found.sources.size(); ++rank) {
    const StateSourceRank& source = found.sources[rank];
    const KeptShare here{
        .data = found.layout.data, .shard_ranks = found.layout.shard_ranks, .rank = source.rank};
    if (ranks[static_cast<size_t>(source.rank)].own.share != here) return false;
    if (source.rank != static_cast<int>(rank) && !source.is_held) return false;
  }
  return true;
}

int64_t newest_step(const std::vector<Kept>& ranks) {
  int64_t newest = -1;
  for (const Kept& kept : ranks) {
    for (const KeptState& state : kept.own.states) newest = std::max(newest, state.step);
    for (const KeptState& state : kept.held.states) newest = std::max(newest, state.step);
  }
  return newest;
}

comm::Call message(comm::Collective kind, std::span<const float> values, int rank) {
  return {.kind = kind,
          .buffer = {.data = const_cast<float*>(values.data()), .count = std::ssize(values)},
          .rank = rank};
}

}  // namespace

// A rank lacks memory if its agent could not make the file, or if that could not grow.
Status Worker::agree_on_states() {
  if (!config_.checkpoint.memory) return {};
  const int64_t mine = has_states_memory_ && config_.state_fd >= 0 ? 1 : 0;
  TRY_ASSIGN(const std::vector<int64_t> all, world_->all_gather_value(mine));
  const auto lacking = std::ranges::find(all, 0);
  has_states_memory_ = lacking == all.end();
  if (has_states_memory_ || config_.rank != 0) return {};
  log_warning("keeping no states in memory: a rank has no memory for them",
              {{"rank", static_cast<int64_t>(lacking - all.begin())}});
  return {};
}

Status Worker::map_states() {
  if (!keeps_states() || keeper_) return {};
  const int fd = static_cast<int>(config_.state_fd);
  const uint64_t mine = model_->share_values();
  TRY_ASSIGN(const std::vector<uint64_t> all, world_->all_gather_value(mine));
  const std::optional<CopyPeers> peers = memory_peers();
  const uint64_t source = peers ? all[static_cast<size_t>(peers->source)] : 0;
  const uint64_t own_bytes = MemoryStates::bytes(mine);
  states_bytes_ = own_bytes + (peers ? MemoryStates::bytes(source) : 0);
  const Status resized = MemoryStates::resize(fd, states_bytes_);
  if (!resized.ok()) {
    log_warning("no memory for states", {{"reason", resized.error().message}});
    has_states_memory_ = false;
  }
  TRY(agree_on_states());
  if (!has_states_memory_) return {};
  const Digest identity = identity_of(config_, settings());
  KeptShare share{.data = model_->layout().data,
                  .shard_ranks = model_->layout().shard_ranks,
                  .rank = config_.rank};
  TRY_ASSIGN(MemoryStates own, MemoryStates::map({fd, 0}, identity, share, mine));
  std::optional<StateKeeper::Held> held;
  if (peers) {
    TRY_ASSIGN(std::unique_ptr<comm::Communicator> group, world_->twin());
    share.rank = peers->source;
    TRY_ASSIGN(MemoryStates states, MemoryStates::map({fd, own_bytes}, identity, share, source));
    held.emplace(
        StateKeeper::Held{.peers = *peers, .group = std::move(group), .states = std::move(states)});
  }
  keeper_.emplace(std::move(own), std::move(held), *model_, surroundings_.clock);
  return {};
}

std::optional<CopyPeers> Worker::memory_peers() const {
  if (config_.checkpoint.memory->copies == 0) return std::nullopt;
  return copy_peers(static_cast<int>(config_.rank), world_->size(),
                    static_cast<int>(config_.world.processes_per_node));
}

Result<Worker::FoundStates> Worker::find_states() const {
  const int fd = static_cast<int>(config_.state_fd);
  const Digest identity = identity_of(config_, settings());
  FoundStates found;
  TRY_ASSIGN(found.own, MemoryStates::find({fd, 0}, identity));
  if (!found.own) return found;
  const uint64_t own_bytes = MemoryStates::bytes(found.own->values());
  TRY_ASSIGN(found.held, MemoryStates::find({fd, own_bytes}, identity));
  return found;
}

// Does nothing if a checkpoint in storage is newer: a pod without its memory may have trained on.
Result<bool> Worker::resume_from_memory() {
  TRY(agree_on_states());
  if (!keeps_states()) return false;
  TRY_ASSIGN(FoundStates mine, find_states());
  Kept kept{.own = kept_in(mine.own), .held = kept_in(mine.held)};
  if (checkpoints_) {
    TRY_ASSIGN(const std::vector<int64_t> steps, checkpoint_steps(*storage_));
    if (!steps.empty()) kept.stored = steps.front();
  }
  TRY_ASSIGN(const std::vector<Kept> ranks, world_->all_gather_value(kept));
  const int64_t stored = ranks[0].stored;
  const std::optional<FoundState> found = KeptByAll(ranks).newest(*model_);
  stored_step_ = stored;
  if (!found && config_.rank == 0 && newest_step(ranks) > 0) {
    log_warning("states in memory are not complete, and not used",
                {{"newestStep", newest_step(ranks)}});
  }
  if (!found || found->state.step <= 0 || found->state.step < stored) return false;
  if (is_in_place(*found, *model_, ranks)) {
    mine = {};
    TRY(restore_own(found->state, found->sources));
  } else {
    std::vector<ShareSource> sources;
    for (const StateSourceRank& source : found->sources) {
      const auto& states = source.is_held ? mine.held : mine.own;
      ShareSource& share = sources.emplace_back(ShareSource{.rank = source.rank});
      if (source.rank == world_->rank()) share.values = states->values_of(found->state.step);
    }
    TRY(restore_from_others(found->state, found->layout, std::move(sources)));
  }
  position_.step = found->state.step;
  position_.samples = found->state.samples;
  position_.losses = found->state.losses;
  loss_ = found->state.loss;
  saved_step_ = stored;
  if (config_.rank != 0) return true;
  progress_.numbers().loss = loss_;
  progress_.storage().from_memory = 1;
  log_info("resuming from memory", {{"step", position_.step},
                                    {"storedStep", stored},
                                    {"ranksThen", model_->ranks_of(found->layout)}});
  return true;
}

// Every rank has its own share, or gets it from the rank that keeps it.
Status Worker::restore_own(const KeptState& state, const std::vector<StateSourceRank>& sources) {
  TRY(map_states());
  std::vector<comm::Call> calls;
  for (size_t rank = 0; rank < sources.size(); ++rank) {
    if (!sources[rank].is_held || sources[rank].rank != world_->rank()) continue;
    calls.push_back(message(comm::Collective::kSend, keeper_->held()->values_of(state.step),
                            static_cast<int>(rank)));
  }
  const StateSourceRank& mine = sources[static_cast<size_t>(world_->rank())];
  if (mine.is_held) {
    calls.push_back(message(comm::Collective::kReceive, keeper_->own().begin(), mine.rank));
  }
  if (!calls.empty()) TRY(world_->run(calls));
  if (mine.is_held) {
    keeper_->own().complete(state);
    log_info("received a state that another node kept",
             {{"rank", config_.rank}, {"from", int64_t{mine.rank}}, {"step", state.step}});
  }
  TRY(model_->restore_share(keeper_->own().values_of(state.step)));
  return model_->exchange_shares(state.step);
}

Status Worker::restore_from_others(const KeptState& state,
                                   const parallel::Composition::OtherLayout& layout,
                                   std::vector<ShareSource> sources) {
  ShareDelivery delivery(*world_, *model_, layout, std::move(sources), {});
  TRY(delivery.deliver());
  log_info("received the shares of another world",
           {{"rank", config_.rank}, {"values", delivery.received_values()}});
  return model_->shares_taken(state.step);
}

// The memory may have been laid out anew, or a pod's may be empty: the state that training goes on
// from is kept at once.
void Worker::go_on_keeping() {
  if (!keeper_) return;
  keeper_->own().forget_after(position_.step);
  if (keeper_->held() != nullptr) keeper_->held()->forget_after(position_.step);
  if (position_.step > 0) begin_to_keep();
}

// The copy before this one is complete, since the update has waited for it.
void Worker::begin_to_keep() {
  if (config_.rank == 0) tell_kept_state();
  keeper_->begin({.step = position_.step,
                  .samples = position_.samples,
                  .loss = loss_,
                  .losses = position_.losses});
}

void Worker::tell_kept_state() {
  const auto states = keeper_->own().kept();
  StorageNotes& notes = progress_.storage();
  notes.kept_step = std::ranges::max(states, {}, &KeptState::step).step;
  notes.kept_bytes = static_cast<int64_t>(states_bytes_);
  notes.kept_blocked_seconds = keeper_->counts().blocked_seconds;
  progress_.publish_storage();
}

void Worker::keep_in_memory_if_due() {
  if (!keeper_ || position_.step % config_.checkpoint.memory->everySteps != 0) return;
  begin_to_keep();
}

Status Worker::tell_what_was_kept() {
  if (!keeper_) return {};
  TRY(keeper_->wait());
  if (config_.rank == 0) tell_kept_state();
  const StateKeeper::Counts& counts = keeper_->counts();
  log_info("states in memory", {{"copies", counts.copies},
                                {"copySeconds", counts.copy_seconds},
                                {"blockedSeconds", counts.blocked_seconds},
                                {"bytes", states_bytes_}});
  return {};
}

}  // namespace lockstep::train
