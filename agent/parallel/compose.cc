#include "agent/parallel/compose.h"

#include <cmath>
#include <vector>

namespace lockstep {

Result<std::unique_ptr<Composition>> Composition::create(const ComposeOptions& options,
                                                         Communicator& world) {
  const Mesh& mesh = options.mesh;
  if (mesh.size() != world.size()) {
    return invalid("[compose] a mesh of " + std::to_string(mesh.size()) + " ranks in a world of " +
                   std::to_string(world.size()));
  }
  if (mesh.pipeline != 1 || mesh.tensor != 1) {
    return invalid("[compose] pipeline and tensor parallelism are not in this version");
  }
  std::unique_ptr<Composition> composition(new Composition(world, options));
  TRY(composition->build());
  return composition;
}

Status Composition::build() {
  const ModelConfig& config = options_.config;
  const Device device;
  ops_ = &cpu_ops();
  place_ = coordinates(options_.mesh, world_.rank());
  if (options_.groups.empty()) options_.groups = mesh_groups(options_.mesh);
  TRY_ASSIGN(groups_, RankGroups::create(world_, options_.groups));
  TRY_ASSIGN(data_group_, groups_->of(Axis::kData));

  const Stage stage = whole_model(config);
  TRY_ASSIGN(Gpt model,
             Gpt::create({.config = config, .stage = stage, .precision = options_.precision}, *ops_,
                         stream_, region_));
  model_.emplace(std::move(model));
  TRY_ASSIGN(store_, ReplicatedStore::create({.config = config,
                                              .stage = stage,
                                              .shard = region_.shard(),
                                              .precision = options_.precision,
                                              .device = device}));
  TRY_ASSIGN(sink_, BucketedSink::create({.arena = store_->arena(),
                                          .bucket_bytes = options_.bucket_bytes,
                                          .device = device},
                                         *data_group_));
  TRY_ASSIGN(optimizer_, AdamWOptimizer::create(config, store_->arena(),
                                                {.parameters = store_->parameters(),
                                                 .gradients = sink_->gradients(),
                                                 .copies = store_->copies()},
                                                options_.optimizer, device, *ops_));
  TRY_ASSIGN(norm_,
             GradientNorm::create(config, store_->arena(), sink_->gradients(), device, *ops_));
  return {};
}

Status Composition::broadcast_state(bool moments) {
  std::vector<float*> arenas{store_->parameters()};
  if (moments) arenas.insert(arenas.end(), {first_moments(), second_moments()});
  for (float* arena : arenas) {
    TRY(data_group_->broadcast({.data = arena, .count = store_->arena().count}, 0));
  }
  store_->refresh_copies(*ops_, stream_);
  return {};
}

Result<double> Composition::gradient_norm() {
  TRY_ASSIGN(const SquaredNormParts parts, norm_->squared(stream_));
  return std::sqrt(parts.sharded + parts.whole);
}

}  // namespace lockstep
