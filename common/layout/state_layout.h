#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/mesh.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_layout.h"

namespace lockstep {

// Which pieces of a model's state the ranks of a mesh hold. A piece is a slice of a logical tensor:
// of a parameter, or of an optimizer's state of it, which has the same layout. Along the data axis,
// groups of `cut.ranks` neighbours divide the arena (ShardLayout), and ranks with the same place in
// their groups, replicas of each other, hold the same pieces. The first replicas are those of the
// first group; without sharding, the ranks with data coordinate 0.
class StateLayout {
 public:
  // A run of floats of a rank's shard.
  struct ShardRange {
    int64_t begin = 0;
    int64_t end = 0;

    int64_t count() const { return end - begin; }
  };
  // The pieces of one parameter in a range of a rank's shard.
  struct ShardPiece {
    int64_t id = 0;              // of the parameter
    std::vector<ShardRun> runs;  // ascending; `local` counts from the beginning of the shard
  };

  // The design passes validate(design, mesh.tensor), and cut.ranks divides mesh.data.
  StateLayout(const ModelDesign& design, const Mesh& mesh, const ShardLayout::Cut& cut = {});

  // Returns the parameters of the whole model.
  const std::vector<Parameter>& table() const { return table_; }
  const ShardLayout& shards(int64_t rank) const;
  // Returns a rank's place in its group.
  int64_t shard_index(int64_t rank) const { return coordinates(mesh_, rank).data % ranks_; }
  // Returns which of the replicas a rank is.
  int64_t replica(int64_t rank) const { return coordinates(mesh_, rank).data / ranks_; }
  int64_t replicas() const { return mesh_.data / ranks_; }

  // Returns the first replicas that hold the parameter or a part of it, ascending. Every stage that
  // reads a tied embedding holds it, and all tensor peers hold what is not split.
  std::vector<int64_t> holders(const Parameter& parameter) const;
  // Returns the pieces of a rank, ascending, without padding; none if it does not hold the
  // parameter. ShardRun::local counts from the beginning of the rank's shard.
  std::vector<ShardRun> pieces(const Parameter& parameter, int64_t rank) const;

  // Divides a shard among its replicas: returns the part of replica `index`. Parts are of about the
  // same size, and together are the shard.
  ShardRange share(int64_t rank, int64_t index) const;
  // Returns the pieces in a range of a rank's shard, ascending by id. With `owned_only`, without
  // those that other stages or tensor peers own: those of the first replicas together are the
  // model, each element once.
  std::vector<ShardPiece> pieces_within(int64_t rank, const ShardRange& range,
                                        bool owned_only) const;

 private:
  const ShardLayout& layout(int64_t stage, int64_t shard) const {
    return layouts_[static_cast<size_t>(stage * mesh_.tensor + shard)];
  }

  Mesh mesh_;
  int64_t ranks_;  // of a sharding group
  std::vector<Parameter> table_;
  std::vector<ShardLayout> layouts_;  // by stage, then by tensor shard
};

// Returns the parts of the runs that lie in [begin, end) of the logical tensor, in their order. The
// runs are ascending in `global`.
std::vector<ShardRun> runs_within(const std::vector<ShardRun>& runs, int64_t begin, int64_t end);

}  // namespace lockstep
