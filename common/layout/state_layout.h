#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/mesh.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"

namespace lockstep {

// Which pieces of a model's state the ranks of a mesh hold. A piece is a slice of a logical tensor:
// of a parameter, or of an optimizer's state of it, which has the same layout. Ranks that differ
// only in their data coordinate hold the same pieces; the ranks meant here are those with data
// coordinate 0.
class StateLayout {
 public:
  // A run of floats of a rank's arena.
  struct ArenaRange {
    int64_t begin = 0;
    int64_t end = 0;

    int64_t count() const { return end - begin; }
  };
  // The pieces of one parameter in a range of a rank's arena.
  struct ArenaPiece {
    int64_t id = 0;              // of the parameter
    std::vector<ShardRun> runs;  // ascending; `local` counts from the beginning of the arena
  };

  // The design passes validate(design, mesh.tensor).
  StateLayout(const ModelDesign& design, const Mesh& mesh);

  // Returns the parameters of the whole model.
  const std::vector<Parameter>& table() const { return table_; }
  // Returns the ranks that hold the parameter or a part of it, ascending. Every stage that reads a
  // tied embedding holds it, and all tensor peers hold what is not split.
  std::vector<int64_t> holders(const Parameter& parameter) const;
  // Returns those of the holders whose pieces together are the tensor, each element once.
  std::vector<int64_t> owners(const Parameter& parameter) const;
  // Returns the pieces of a rank with data coordinate 0, ascending, without padding; none if it
  // does not hold the parameter. ShardRun::local counts from the beginning of the rank's part.
  std::vector<ShardRun> pieces(const Parameter& parameter, int64_t rank) const;

  // Divides the arena of a rank among the ranks that differ from it only in their data coordinate
  // and so hold the same values: returns the part of data coordinate `index`. Parts are of about
  // the same size, and together are the arena.
  ArenaRange share(int64_t rank, int64_t index) const;
  // Returns the pieces in a range of a rank's arena, ascending by id. With `owned_only`, without
  // those that owners() leaves to other ranks.
  std::vector<ArenaPiece> pieces_within(int64_t rank, const ArenaRange& range,
                                        bool owned_only) const;

 private:
  const ParameterArena& arena(int64_t stage, int64_t shard) const {
    return arenas_[static_cast<size_t>(stage * mesh_.tensor + shard)];
  }

  const ParameterArena& arena_of(int64_t rank) const {
    const MeshCoordinates at = coordinates(mesh_, rank);
    return arena(at.pipeline, at.tensor);
  }

  Mesh mesh_;
  std::vector<Parameter> table_;
  std::vector<ParameterArena> arenas_;  // by stage, then by tensor shard
};

// Returns the parts of the runs that lie in [begin, end) of the logical tensor, in their order. The
// runs are ascending in `global`.
std::vector<ShardRun> runs_within(const std::vector<ShardRun>& runs, int64_t begin, int64_t end);

}  // namespace lockstep
