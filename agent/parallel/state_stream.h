#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/held_state.h"
#include "common/base/result.h"
#include "common/layout/state_layout.h"

namespace lockstep::parallel {

// A logical tensor of a model's state: a parameter, or a state that the optimizer keeps for it.
struct StateTensor {
  const Parameter& parameter;
  size_t kind = 0;  // 0: the parameter itself; n: the optimizer's n-th state, counted from 1
};

// Provides the state of a model, tensor by tensor: a checkpoint, a file of weights. One thread.
class StateSource {
 public:
  virtual ~StateSource() = default;

  // Fills `to`, in host memory, with the tensor's elements from `first` on. The calls for a tensor
  // are ascending and cover it once.
  virtual Status read(const StateTensor& tensor, int64_t first, std::span<float> to) = 0;
};

// Moves the state between rank 0 of the world and all ranks that hold it, one tensor after the
// other (of kind 0, then of kind 1, ...), each in slices of `piece_values` elements. Every rank of
// the mesh calls it with the same kinds; `world` has the ranks of the layout's mesh. Errors are
// those of rank 0's source or sink, of the device and of the communicator.
//
// Host memory, in addition to the buffers of HostTransfer: rank 0 keeps a slice and a packed copy
// of each owner's or holder's part of it. The parts of owners add up to one slice; each holder's
// part is a slice at most. Any other rank keeps its own part of a slice. A tensor that only rank 0
// has takes no memory: the sink or source uses the buffers or, on the CPU, the state itself.
class StateStream {
 public:
  // `piece_values`: the elements of a slice, which are moved together.
  StateStream(comm::Communicator& world, const StateLayout& layout, HeldState mine,
              int64_t piece_values = kTransferPieceBytes / sizeof(float))
      : world_(world), layout_(layout), mine_(std::move(mine)), piece_values_(piece_values) {}

  // From the source, which only rank 0 has, to every holder among the first replicas. Padding stays
  // as it is.
  Status distribute(StateSource* source, size_t kinds);

 private:
  // The pieces of a tensor on one rank.
  struct Part {
    int64_t rank = 0;
    std::vector<ShardRun> pieces;
  };
  // Elements [begin, end) of a logical tensor, and who has which of them.
  struct Slice {
    const StateTensor& tensor;
    int64_t begin = 0;
    int64_t end = 0;
    std::vector<Part> parts;  // without the ranks that have none
  };
  Status each_tensor(size_t kinds, const std::function<Status(const StateTensor&)>& move) const;
  // Returns the next slice from `begin` on.
  Slice slice_at(int64_t begin, const StateTensor& tensor, const std::vector<Part>& parts) const;
  std::vector<Part> parts_of(const StateTensor& tensor, const std::vector<int64_t>& ranks) const;

  Status distribute_slice(const Slice& slice, StateSource* source);
  Status write_mine(const Slice& slice, const Part& part, std::span<const float> packed);
  // The place of the pieces in this rank's memory; pieces that are adjacent there as one.
  std::vector<ValueRun> runs_here(const StateTensor& tensor, const Part& part) const;
  // Rank 0's, of a tensor that nobody else has a part of.
  Status read_all(const StateTensor& tensor, StateSource& source);

  bool is_root() const { return world_.rank() == 0; }

  comm::Communicator& world_;
  const StateLayout& layout_;
  HeldState mine_;
  int64_t piece_values_;
};

}  // namespace lockstep::parallel
