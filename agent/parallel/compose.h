#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/model/gpt.h"
#include "agent/model/tp_region.h"
#include "agent/optim/adamw_optimizer.h"
#include "agent/optim/clip.h"
#include "agent/parallel/bucketed_sink.h"
#include "agent/parallel/rank_groups.h"
#include "agent/parallel/replicated_store.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep {

struct ComposeOptions {
  ModelConfig config;
  Mesh mesh;
  // Of the WorldAssignment; empty: those of the mesh's axes.
  std::vector<WorldGroup> groups = {};
  int64_t bucket_bytes = 0;  // of gradients that are reduced together
  AdamWOptions optimizer;
  Precision precision = Precision::kF32;
};

// What one rank trains with, put together for its place in the mesh. Everything that differs
// between meshes is decided here; the step loop works with any of them. One thread.
class Composition {
 public:
  // The world outlives the composition. kInvalid for a mesh that this version does not carry out or
  // that is not the world's size, kUnavailable where memory is short.
  static Result<std::unique_ptr<Composition>> create(const ComposeOptions& options,
                                                     Communicator& world);

  Gpt& model() { return *model_; }
  ReplicatedStore& store() { return *store_; }
  BucketedSink& sink() { return *sink_; }
  Stream& stream() { return stream_; }
  const OpTable& ops() const { return *ops_; }
  const MeshCoordinates& place() const { return place_; }
  const RankGroups& groups() const { return *groups_; }

  // Parameters, and with `moments` the optimizer's too, of the first rank of the data axis to the
  // others.
  Status broadcast_state(bool moments);
  // The moments in the layout of the parameters.
  float* first_moments() { return optimizer_->first_moments(); }
  float* second_moments() { return optimizer_->second_moments(); }

  // The norm of all gradients, after sink().finish(): the same bits on every rank.
  Result<double> gradient_norm();
  // Updates the parameters with gradients times `scale`.
  void update(const AdamWStep& step) { optimizer_->step(stream_, step); }

 private:
  Composition(Communicator& world, const ComposeOptions& options)
      : world_(world), options_(options) {}
  Status build();

  Communicator& world_;
  ComposeOptions options_;
  MeshCoordinates place_;
  const OpTable* ops_ = nullptr;
  Stream stream_;
  WholeTensor region_;
  std::optional<RankGroups> groups_;
  Communicator* data_group_ = nullptr;  // of groups_
  std::optional<Gpt> model_;
  std::optional<ReplicatedStore> store_;
  std::optional<BucketedSink> sink_;
  std::optional<AdamWOptimizer> optimizer_;
  std::optional<GradientNorm> norm_;
};

}  // namespace lockstep
