#include "agent/model/passes.h"

#include <utility>

namespace lockstep::model {
namespace {

// Holds a block's parameters while it computes.
class Held {
 public:
  static Result<Held> get(ParamStore& store, const BlockUse& use) {
    TRY_ASSIGN(const std::span<const ParamView> views, store.get(use));
    return Held(store, use, views);
  }
  Held(Held&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), use_(other.use_), views_(other.views_) {}
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (store_ != nullptr) store_->release(use_);
  }

  std::span<const ParamView> views() const { return views_; }

 private:
  Held(ParamStore& store, const BlockUse& use, std::span<const ParamView> views)
      : store_(&store), use_(use), views_(views) {}

  ParamStore* store_;
  BlockUse use_;
  std::span<const ParamView> views_;
};

}  // namespace

Status forward_pass(const Model& model, ParamStore& store, MicroBatch& batch) {
  BlockUse use{.version = batch.version(),
               .pass = batch.trains() ? Pass::kForward : Pass::kEvaluate};
  const Stage& stage = model.stage();
  for (use.block = stage.begin; use.block < stage.end; ++use.block) {
    TRY_ASSIGN(const Held held, Held::get(store, use));
    BlockUse next = use;
    ++next.block;
    if (next.block < stage.end) store.prefetch(next);
    TRY(batch.forward(use.block, held.views()));
  }
  return {};
}

Status backward_pass(const Model& model, ParamStore& store, MicroBatch& batch, GradSink& sink) {
  return backward_pass(model, store, batch, sink, batch.version());
}

Status backward_pass(const Model& model, ParamStore& store, MicroBatch& batch, GradSink& sink,
                     int64_t version) {
  BlockUse use{.version = version, .pass = Pass::kBackward};
  const Stage& stage = model.stage();
  for (use.block = stage.end - 1; use.block >= stage.begin; --use.block) {
    TRY_ASSIGN(const Held held, Held::get(store, use));
    BlockUse next = use;
    --next.block;
    if (next.block >= stage.begin) store.prefetch(next);
    TRY(batch.backward(use.block, held.views(), sink));
  }
  return sink.end_micro_batch();
}

namespace {

// Gives the buffers of another sink, and reports nothing to it.
class QuietSink final : public GradSink {
 public:
  explicit QuietSink(GradSink& sink) : sink_(sink) {}
  float* buffer(int64_t id) override { return sink_.buffer(id); }
  Status ready(int64_t) override { return {}; }
  Status end_micro_batch() override { return {}; }

 private:
  GradSink& sink_;
};

}  // namespace

Status backward_inputs_pass(const Model& model, ParamStore& store, MicroBatch& batch,
                            GradSink& sink) {
  QuietSink quiet(sink);
  return backward_pass(model, store, batch, quiet);
}

Status backward_weights_pass(const Model& model, MicroBatch& batch, GradSink& sink) {
  const Stage& stage = model.stage();
  for (int64_t block = stage.end - 1; block >= stage.begin; --block) {
    TRY(batch.backward_weights(block, sink));
  }
  return sink.end_micro_batch();
}

}  // namespace lockstep::model
