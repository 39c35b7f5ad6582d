#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/compose.h"
#include "common/base/result.h"

namespace lockstep::train {

// Where a share is: on a rank of this world, with its values on that rank alone.
struct ShareSource {
  int rank = 0;
  std::span<const float> values{};
};

// Brings the shares of another world to the ranks that hold any of them. Pieces that all ranks need
// are broadcast. Others go only to those that need them, from all sources at the same time: with
// sharding, a rank receives about as much as it holds, not the whole state. All ranks of the world
// make one, and call deliver().
//
// Host memory: the pieces that a rank receives at a time, and where the values of all shares belong
// (parallel::Composition::ForeignShare). Threads: one.
class ShareDelivery {
 public:
  struct Limits {
    uint64_t piece_values = uint64_t{1} << 21;
    size_t pieces = 8;  // that a rank receives at a time
  };
  // `sources`: by rank of the other world. All are of the world of `model`, and outlive this.
  ShareDelivery(comm::Communicator& world, parallel::Composition& model,
                const parallel::Composition::OtherLayout& layout, std::vector<ShareSource> sources,
                const Limits& limits);

  // Fills what this rank holds of the parameters and the optimizer's states. Afterwards the caller
  // calls shares_taken(). Errors are the communicator's and the device's.
  Status deliver();
  // Values that came from other ranks.
  uint64_t received_values() const { return received_values_; }

 private:
  struct Piece {
    size_t share = 0;
    uint64_t first = 0;
    uint64_t count = 0;
    std::vector<int> receivers;  // other ranks that need any of it
    bool is_mine = false;        // this rank needs any of it
  };
  Result<std::vector<Piece>> pieces_from(uint64_t first) const;
  Status deliver_pieces(const std::vector<Piece>& pieces);
  Status receive(std::span<const Piece* const> pieces);
  Status broadcast(const Piece& piece);
  bool is_source_of(const Piece& piece) const;
  std::span<const float> values_of(const Piece& piece) const;
  Status take(const Piece& piece, std::span<const float> values);

  comm::Communicator& world_;
  parallel::Composition& model_;
  std::vector<ShareSource> sources_;
  std::vector<parallel::Composition::ForeignShare> shares_;  // by rank of the other world
  Limits limits_;
  uint64_t received_values_ = 0;
};

}  // namespace lockstep::train
