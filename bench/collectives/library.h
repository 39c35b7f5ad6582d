#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep::bench {

// One collective operation in a form that every library can run. Elements have 4 bytes (f32 for
// SUM, i32 for LOR). A block has `count` elements; n is the number of ranks.
struct Turn {
  comm::Collective kind = comm::Collective::kAllReduce;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  // all_gather: one block; reduce_scatter and all_to_all: n blocks. The other operations are
  // in-place in `output`.
  std::byte* input = nullptr;
  // all_gather and all_to_all: n blocks; the other operations: one block.
  std::byte* output = nullptr;
  int64_t count = 0;
  int root = 0;
};

// The collectives of one library in this process, which is one of its ranks. Not thread-safe.
class Library {
 public:
  virtual ~Library() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // For example "Gloo 0.5.0, tcp on 127.0.0.1".
  virtual std::string describe() const = 0;
  // Returns why the library can't run this operation; empty if it can.
  virtual std::string unsupported_reason(const Turn& turn) const = 0;
  virtual Status run(const Turn& turn) = 0;
  // Returns where run() leaves its result.
  virtual const std::byte* result(const Turn& turn) const { return turn.output; }
};

// How this process finds the other ranks.
struct Joining {
  int rank = 0;
  int size = 1;
  std::string folder;  // for rendezvous: initially empty, the same for all ranks
};

// Whether the build found the library. If not, joining returns kUnavailable and names the missing
// package.
bool has_gloo();
bool has_mpi();
Result<std::unique_ptr<Library>> join_gloo(const Joining& joining);
Result<std::unique_ptr<Library>> join_mpi();
std::unique_ptr<Library> use_lockstep(std::unique_ptr<comm::Communicator> comm);

}  // namespace lockstep::bench
