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

 private:
  const ParameterArena& arena(int64_t stage, int64_t shard) const {
    return arenas_[static_cast<size_t>(stage * mesh_.tensor + shard)];
  }

  Mesh mesh_;
  std::vector<Parameter> table_;
  std::vector<ParameterArena> arenas_;  // by stage, then by tensor shard
};

// Returns the parts of the runs that lie in [begin, end) of the logical tensor, in their order. The
// runs are ascending in `global`.
std::vector<ShardRun> runs_within(const std::vector<ShardRun>& runs, int64_t begin, int64_t end);

}  // namespace lockstep
