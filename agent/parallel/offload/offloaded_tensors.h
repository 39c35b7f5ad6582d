#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "agent/parallel/offload/piece_stream.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/parameter_update.h"

namespace lockstep::parallel {

// The far arrays of an optimizer's tensors, all with the same layout. Null: not far.
struct FarArrays {
  std::array<const FarMemory*, kernels::kUpdateStatesMax> states = {};
  const FarMemory* parameters = nullptr;
  bool is_written = true;  // otherwise they are only read: to make copies of the parameters

  size_t size() const;
};

// An optimizer's tensors whose states or parameters are in far arrays. Brings them to the device
// piece by piece.
class OffloadedTensors {
 public:
  // A tensor's states[k] or parameter points into the far array (from FarMemory::data() on) if
  // there is one, and to the device otherwise; its gradient and its copy are on the device. A
  // tensor is at the same place of all far arrays, and tensors ascend in that place. With `count`
  // floats in each array, a buffer has piece_buffer_bytes(far.size(), count). Stream, far arrays,
  // memory and clock outlive the object. Has the errors of make_piece_stream().
  static Result<OffloadedTensors> create(kernels::Stream& stream, const FarArrays& far,
                                         std::span<const kernels::UpdatedTensor> tensors,
                                         const PieceMemory& memory, const Clock& clock);

  // Calls `visit` with some tensors at a time, which are then entirely on the device, until it had
  // every element once, in order. `visit` issues work on the stream that treats each element alone,
  // as the optimizers' ops do; then the results are the same bits as those of a single call without
  // pieces. Returns when the far arrays have the new values, with the errors of PieceStream::run().
  using Visit = std::function<Status(std::span<const kernels::UpdatedTensor> tensors)>;
  Status visit(const Visit& visit);

  const OffloadCounts& counts() const { return stream_->counts(); }

 private:
  OffloadedTensors() = default;

  std::unique_ptr<PieceStream> stream_;
  std::vector<FarRange> ranges_;                              // by piece
  std::vector<std::vector<kernels::UpdatedTensor>> tensors_;  // likewise, in the buffers
};

}  // namespace lockstep::parallel
