#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/model_design.h"
#include "common/layout/parameters.h"

namespace lockstep {

// Neighbouring parameters that are divided together, in equal pieces: rank i of a group has piece
// i.
struct ShardUnit {
  int64_t first_id = 0;  // of the parameters
  int64_t last_id = 0;
  int64_t offset = 0;  // floats in the arena
  int64_t piece = 0;   // floats of each rank, a multiple of 16
  int64_t local = 0;   // where the piece begins in a rank's shard

  bool operator==(const ShardUnit&) const = default;
};

// A run of floats in an arena and in the shard of the rank that has it.
struct ShardSlice {
  int64_t offset = 0;  // in the arena
  int64_t local = 0;   // in the shard
  int64_t count = 0;

  bool operator==(const ShardSlice&) const = default;
};

// How the ranks of a group divide the arena that each of them would have alone. An arena consists
// of units, whose ends are padded so that pieces are equal; a rank's shard is its pieces of all
// units, back to back. For a group of one the shard is the arena, without padding.
class ShardLayout {
 public:
  // How to cut: blocks of the model are joined, from the last one on, until a unit has at least
  // unit_bytes. 0: each block is a unit. A tied embedding's block is always one, because its
  // gradients stay incomplete until the end of backward. A unit has blocks of one chunk, because
  // the backwards of other chunks run at other times.
  struct Cut {
    int64_t ranks = 1;
    int64_t unit_bytes = 0;
    // A tied embedding is a unit without the rest of its block, so that the stages that hold it
    // divide it alike.
    bool ties_stages = false;

    bool operator==(const Cut&) const = default;
  };
  // `arena`: as parameter_arena() has it.
  ShardLayout(const ModelDesign& design, const ParameterArena& arena, const Cut& cut);

  // Returns the arena with its padding.
  const ParameterArena& arena() const { return arena_; }
  const std::vector<ShardUnit>& units() const { return units_; }  // ascending
  int64_t ranks() const { return ranks_; }
  int64_t shard_count() const { return shard_count_; }  // floats, the same for all ranks
  // Returns the floats of a unit, with padding.
  int64_t count(const ShardUnit& unit) const { return unit.piece * ranks_; }
  // Returns the unit of a parameter that the arena has.
  size_t unit_of(int64_t id) const;
  // Returns what rank `index` of the group has, ascending in both places; slices that are adjacent
  // in both as one.
  std::vector<ShardSlice> slices(int64_t index) const;

 private:
  ParameterArena arena_;
  std::vector<ShardUnit> units_;
  int64_t ranks_ = 1;
  int64_t shard_count_ = 0;
};

// Returns the parts of the slices that lie in [begin, end) of the shard, or, with offsets_within(),
// of the arena.
std::vector<ShardSlice> slices_within(const std::vector<ShardSlice>& slices, int64_t begin,
                                      int64_t end);
std::vector<ShardSlice> offsets_within(const std::vector<ShardSlice>& slices, int64_t begin,
                                       int64_t end);

}  // namespace lockstep
