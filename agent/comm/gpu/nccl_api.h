#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "agent/comm/data_type.h"
#include "agent/comm/gpu/nccl_plan.h"
#include "common/base/result.h"

namespace lockstep::comm {

using NcclId = std::array<std::byte, 128>;

// A step of a plan, with its addresses.
struct NcclCall {
  NcclStep step;
  const void* from = nullptr;
  void* to = nullptr;
  void* stream = nullptr;
};

// The part of NCCL that Lockstep uses, with communicators that never block (ncclConfig_t.blocking =
// 0). Errors are kUnavailable with NCCL's text, and blame a peer: NCCL does not say whose fault
// they are. One thread at a time uses a communicator.
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
  // Begins to make a communicator; in_progress() tells when it is ready.
  virtual Result<Comm> init(const Init& init) = 0;
  // Whether earlier calls on the communicator are still in progress. Until they are done, work that
  // others issue on a stream may run before them. Errors are permanent; they include asynchronous
  // ones, of earlier calls and of other ranks.
  virtual Result<bool> in_progress(Comm comm) = 0;
  // Calls that one thread issues between begin_group() and end_group() are submitted together.
  // end_group() also reports a call that failed.
  virtual Status begin_group() = 0;
  virtual Status issue(Comm comm, const NcclCall& call) = 0;
  virtual Status end_group() = 0;
  // Begins to wait for everything issued, here and on the other ranks; destroy() comes next.
  virtual Status finalize(Comm comm) = 0;
  virtual void destroy(Comm comm) = 0;
  // Ends everything that was issued, wherever it is, and destroys the communicator. The device's
  // part of it has ended when this returns, or ends soon after.
  virtual void abort(Comm comm) = 0;
};

// Returns the library, which is loaded on first use. kUnavailable if it is missing, or if this
// build has no NCCL.
Result<std::shared_ptr<NcclApi>> load_nccl();

}  // namespace lockstep::comm
