#include "agent/parallel/pulled_store.h"

#include <algorithm>

namespace lockstep::parallel {

PulledStore::PulledStore(const ReplicatedStoreOptions& options, RemoteParameters& remote)
    : replica_(options),
      remote_(remote),
      ids_(static_cast<size_t>(block_count(options.design))),
      is_coming_(static_cast<size_t>(options.arena.entries.back().id + 1)) {
  for (const int64_t block : options.blocks) {
    ids_[static_cast<size_t>(block)] = block_parameters(options.design, block);
  }
}

Status PulledStore::finish(int64_t id) {
  is_coming_[static_cast<size_t>(id)] = false;
  return remote_.finish_pull(id);
}

Result<std::span<const model::ParamView>> PulledStore::get(const model::BlockUse& use) {
  const std::vector<int64_t>& ids = ids_[static_cast<size_t>(use.block)];
  const bool waits =
      std::ranges::any_of(ids, [&](int64_t id) { return is_coming_[static_cast<size_t>(id)]; });
  if (waits) {
    if (observer_) observer_(use.pass, true);
    for (const int64_t id : ids) TRY(finish(id));
    if (observer_) observer_(use.pass, false);
  }
  return replica_.get(use);
}

Status PulledStore::updated(int64_t step) {
  TRY(settle());
  for (const ArenaEntry& entry : replica_.arena().entries) {
    is_coming_[static_cast<size_t>(entry.id)] = true;
    remote_.pull(entry.id, step,
                 {replica_.parameters() + entry.offset, static_cast<size_t>(entry.count)});
  }
  return {};
}

Status PulledStore::settle() {
  Status first;
  for (const ArenaEntry& entry : replica_.arena().entries) {
    const Status finished = finish(entry.id);
    if (first.ok()) first = finished;
  }
  return first;
}

}  // namespace lockstep::parallel
