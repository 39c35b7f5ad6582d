#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep {

// One operation as all libraries see it: elements of 4 bytes (f32 for SUM, i32 for LOR), blocks of
// `count` of them, n ranks.
struct Turn {
  Collective kind = Collective::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  // all_gather: a block; reduce_scatter and all_to_all: n blocks; the others work in `output`.
  std::byte* input = nullptr;
  // all_gather and all_to_all: n blocks; else a block.
  std::byte* output = nullptr;
  int64_t count = 0;
  int root = 0;
};

// A library's collectives in this process, which is one of the ranks that it connects. One thread.
class Library {
 public:
  virtual ~Library() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "Gloo 0.5.0, tcp on 127.0.0.1"
  virtual std::string describe() const = 0;
  // Returns why the library cannot run it; empty if it can.
  virtual std::string unsupported_reason(const Turn& turn) const = 0;
  virtual Status run(const Turn& turn) = 0;
  // Where the result of run() lies.
  virtual const std::byte* result(const Turn& turn) const { return turn.output; }
};

// How this process finds the others.
struct Joining {
  int rank = 0;
  int size = 1;
  std::string folder;  // empty, the same for all ranks
};

// Whether the build found it. Where it did not, joining is kUnavailable and names the package.
bool has_gloo();
bool has_mpi();
Result<std::unique_ptr<Library>> join_gloo(const Joining& joining);
Result<std::unique_ptr<Library>> join_mpi();
std::unique_ptr<Library> use_lockstep(std::unique_ptr<Communicator> comm);

}  // namespace lockstep
