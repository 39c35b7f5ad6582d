#include "agent/parallel/replicated_store.h"

namespace lockstep::parallel {

ReplicatedStore::ReplicatedStore(const ReplicatedStoreOptions& options)
    : stage_(options.stage),
      arena_(options.arena),
      parameters_(options.parameters),
      copies_(options.copies) {
  for (int64_t block = options.stage.begin; block < options.stage.end; ++block) {
    std::vector<model::ParamView>& views = views_.emplace_back();
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
  CHECK(use.version == model::kLatestVersion && use.block >= stage_.begin &&
        use.block < stage_.end);
  return std::span<const model::ParamView>(views_[static_cast<size_t>(use.block - stage_.begin)]);
}

}  // namespace lockstep::parallel
