#include "agent/parallel/replicated_store.h"

namespace lockstep {

Result<ReplicatedStore> ReplicatedStore::create(const ReplicatedStoreOptions& options) {
  ReplicatedStore store;
  store.stage_ = options.stage;
  store.arena_ = parameter_arena(options.config, options.stage, options.shard);
  const auto count = static_cast<size_t>(store.arena_.count);
  TRY_ASSIGN(store.parameters_, Buffer::allocate(options.device, count * sizeof(float)));
  if (options.precision == Precision::kBf16) {
    TRY_ASSIGN(store.copies_, Buffer::allocate(options.device, count * sizeof(Bf16)));
  }
  for (int64_t block = options.stage.begin; block < options.stage.end; ++block) {
    std::vector<ParamView>& views = store.views_.emplace_back();
    for (const int64_t id : block_parameters(options.config, block)) {
      const ArenaEntry* entry = store.arena_.find(id);
      CHECK(entry != nullptr);
      const float* value = store.parameters() + entry->offset;
      const Bf16* copy = store.copies();
      views.push_back(
          {value, copy == nullptr ? ConstView(value) : ConstView(copy + entry->offset)});
    }
  }
  return store;
}

Result<std::span<const ParamView>> ReplicatedStore::get(int64_t block, int64_t version) {
  CHECK(version == kLatestVersion && block >= stage_.begin && block < stage_.end);
  return std::span<const ParamView>(views_[static_cast<size_t>(block - stage_.begin)]);
}

void ReplicatedStore::refresh_copies(const OpTable& ops, Stream& stream) {
  if (copies() == nullptr) return;
  ops.cast(stream, {.x = ConstView(parameters()), .out = View(copies()), .count = arena_.count});
}

}  // namespace lockstep
