#include "agent/parallel/stashed_store.h"

namespace lockstep::parallel {
namespace {

// Returns where the n-th stashed version is.
ReplicatedStoreOptions stashed(const StashedStore::Options& options, int64_t n) {
  ReplicatedStoreOptions slot = options.latest;
  slot.parameters = options.stash + n * slot.arena.count;
  if (slot.copies != nullptr) slot.copies = options.stashed_copies + n * slot.arena.count;
  return slot;
}

}  // namespace

StashedStore::StashedStore(const Options& options, kernels::Stream& compute)
    : latest_(options.latest), compute_(compute) {
  for (int64_t n = 0; n < options.versions; ++n) {
    slots_.push_back({.store = ReplicatedStore(stashed(options, n))});
  }
}

Result<std::span<const model::ParamView>> StashedStore::get(const model::BlockUse& use) {
  model::BlockUse plain = use;
  plain.version = model::kLatestVersion;
  if (use.version == model::kLatestVersion || use.version == latest_version_) {
    return latest_.get(plain);
  }
  CHECK(!slots_.empty());
  Slot& slot = slot_of(use.version);
  CHECK(slot.version == use.version);
  return slot.store.get(plain);
}

Status StashedStore::updating(int64_t step) {
  CHECK(step == latest_version_ + 1);
  if (slots_.empty()) return {};
  Slot& slot = slot_of(latest_version_);
  slot.version = latest_version_;
  const auto count = static_cast<size_t>(latest_.arena().count);
  TRY(kernels::copy_bytes(compute_, {.to = slot.store.parameters(),
                                     .from = latest_.parameters(),
                                     .bytes = count * sizeof(float)}));
  if (latest_.copies() == nullptr) return {};
  return kernels::copy_bytes(compute_, {.to = slot.store.copies(),
                                        .from = latest_.copies(),
                                        .bytes = count * sizeof(kernels::Bf16)});
}

}  // namespace lockstep::parallel
