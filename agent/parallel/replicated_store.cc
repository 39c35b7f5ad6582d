#include "agent/parallel/replicated_store.h"

namespace lockstep::parallel {

ReplicatedStore::ReplicatedStore(const ReplicatedStoreOptions& options)
    : arena_(options.arena),
      parameters_(options.parameters),
      copies_(options.copies),
      views_(static_cast<size_t>(block_count(options.design))) {
  for (const int64_t block : options.blocks) {
    std::vector<model::ParamView>& views = views_[static_cast<size_t>(block)];
    for (const int64_t id : block_parameters(options.design, block)) {
      const ArenaEntry* entry = arena_.find(id);
      CHECK(entry != nullptr);
      const float* value = parameters_ + entry->offset;
      views.push_back({value, copies_ == nullptr ? kernels::ConstView(value)
                                                 : kernels::ConstView(copies_ + entry->offset)});
    }
  }
}

Result<std::span<const model::ParamView>> ReplicatedStore::get(const model::BlockUse& use) {
  const std::vector<model::ParamView>& views = views_[static_cast<size_t>(use.block)];
  CHECK(use.version == model::kLatestVersion && !views.empty());
  return std::span<const model::ParamView>(views);
}

}  // namespace lockstep::parallel
