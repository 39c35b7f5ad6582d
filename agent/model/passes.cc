#include "agent/model/passes.h"

#include <utility>

namespace lockstep::model {
namespace {

// Holds a block's parameters while it computes.
class Held {
 public:
  static Result<Held> get(ParamStore& store, int64_t block, int64_t version) {
    TRY_ASSIGN(const std::span<const ParamView> views, store.get(block, version));
    return Held(store, block, version, views);
  }
  Held(Held&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)),
        block_(other.block_),
        version_(other.version_),
        views_(other.views_) {}
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (store_ != nullptr) store_->release(block_, version_);
  }

  std::span<const ParamView> views() const { return views_; }

 private:
  Held(ParamStore& store, int64_t block, int64_t version, std::span<const ParamView> views)
      : store_(&store), block_(block), version_(version), views_(views) {}

  ParamStore* store_;
  int64_t block_;
  int64_t version_;
  std::span<const ParamView> views_;
};

}  // namespace

Status forward_pass(const Model& model, ParamStore& store, MicroBatch& batch) {
  const int64_t version = batch.version();
  const Stage& stage = model.stage();
  for (int64_t block = stage.begin; block < stage.end; ++block) {
    TRY_ASSIGN(const Held held, Held::get(store, block, version));
    if (block + 1 < stage.end) store.prefetch(block + 1, version);
    TRY(batch.forward(block, held.views()));
  }
  return {};
}

Status backward_pass(const Model& model, ParamStore& store, MicroBatch& batch, GradSink& sink) {
  const int64_t version = batch.version();
  const Stage& stage = model.stage();
  for (int64_t block = stage.end - 1; block >= stage.begin; --block) {
    TRY_ASSIGN(const Held held, Held::get(store, block, version));
    if (block > stage.begin) store.prefetch(block - 1, version);
    TRY(batch.backward(block, held.views(), sink));
  }
  return sink.end_micro_batch();
}

}  // namespace lockstep::model
