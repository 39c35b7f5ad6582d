#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "agent/parallel/batch_feed.h"
#include "agent/parallel/memory_plan.h"
#include "agent/train/data/batch_loader.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::train {

// A place for one micro-batch on a device, with page-locked memory of the host to copy it from. On
// the CPU there is no place and no copy: the batch is read where it is. Move-only.
class BatchSlot {
 public:
  // The memory outlives the slot, and its size limits the batches. Errors are the device's.
  static Result<BatchSlot> create(kernels::Device device, const parallel::BatchMemory& memory);

  // Copies the batch on the stream. Waits for the device only if this slot's previous copy is not
  // over. Work that reads the slot must be ordered after the copy: on the same stream, or by
  // make_stream_wait().
  Result<parallel::DeviceBatch> put(const SampleBatch& batch, kernels::Stream& stream);
  // Orders later work on the stream after the last copy.
  Status make_stream_wait(kernels::Stream& stream) const {
    return copied_.make_stream_wait(stream.handle());
  }

 private:
  parallel::BatchMemory memory_;
  kernels::Event copied_;
};

// A loader's micro-batches on the device of a stream: while that computes on one, the next one is
// copied on a stream of this object's. One thread.
class DeviceFeed final : public parallel::BatchFeed {
 public:
  // Loader, stream and the slots' memory outlive it.
  static Result<std::unique_ptr<DeviceFeed>> create(
      BatchLoader& loader, kernels::Stream& compute,
      const std::array<parallel::BatchMemory, 2>& memory);
  ~DeviceFeed() override;

  // Never ends. Returns the loader's error in its turn; others are the device's.
  Result<std::optional<parallel::DeviceBatch>> next() override;

 private:
  struct Slot {
    BatchSlot slot;
    parallel::DeviceBatch batch;
    kernels::Event read;  // what reads it is issued until here
    Status loaded;
  };
  DeviceFeed(BatchLoader& loader, kernels::Stream& compute)
      : loader_(&loader), compute_(&compute) {}
  Slot& at(uint64_t index) { return slots_[index % slots_.size()]; }
  Status load(Slot& slot);

  BatchLoader* loader_;
  kernels::Stream* compute_;
  kernels::Stream copies_;
  std::array<Slot, 2> slots_;
  uint64_t taken_ = 0;
};

}  // namespace lockstep::train
