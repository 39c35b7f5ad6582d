#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "agent/comm/data_type.h"
#include "agent/comm/gpu/nccl_plan.h"
#include "common/base/result.h"

namespace lockstep {

using NcclId = std::array<std::byte, 128>;

// A step with its addresses.
struct NcclCall {
  NcclStep step;
  const void* from = nullptr;
  void* to = nullptr;
  void* stream = nullptr;
};

// What Lockstep uses of NCCL, communicators that never block (ncclConfig_t.blocking = 0). Errors
// are kUnavailable with NCCL's words. A communicator is used by one thread at a time.
class NcclApi {
 public:
  using Comm = void*;  // ncclComm_t

  virtual ~NcclApi() = default;
  // As ncclGetVersion: 22809 is 2.28.9.
  virtual int version() const = 0;
  virtual Result<NcclId> make_id() = 0;

  struct Init {
    NcclId id{};
    int rank = 0;
    int size = 1;
    int device = 0;  // index of the CUDA device
  };
  // Begins; in_progress() says when it is over.
  virtual Result<Comm> init(const Init& init) = 0;
  // Whether what was begun on the communicator is still on its way: what is issued on a stream
  // meanwhile may come before it. An error, also of what went wrong later and elsewhere (the
  // asynchronous ones), is for good.
  virtual Result<bool> in_progress(Comm comm) = 0;
  // Between begin_group() and end_group() of one thread: calls that are issued together. A call
  // that fails is told by end_group() too.
  virtual Status begin_group() = 0;
  virtual Status issue(Comm comm, const NcclCall& call) = 0;
  virtual Status end_group() = 0;
  // Begins to wait for what was issued, here and on the other ranks; then destroy().
  virtual Status finalize(Comm comm) = 0;
  virtual void destroy(Comm comm) = 0;
  // Ends what was issued, wherever it is, and destroys the communicator. The device's part of it is
  // over when this returns or soon after.
  virtual void abort(Comm comm) = 0;
};

// The library, loaded when it is first asked for. kUnavailable where there is none, or where this
// build has no NCCL.
Result<std::shared_ptr<NcclApi>> load_nccl();

}  // namespace lockstep
