#include "agent/train/data/device_feed.h"

#include <cstring>

namespace lockstep::train {

Result<BatchSlot> BatchSlot::create(kernels::Device device, const parallel::BatchMemory& memory) {
  CHECK(memory.pinned.bytes == memory.device.bytes);
  BatchSlot slot;
  TRY_ASSIGN(slot.copied_, kernels::Event::create(device));
  slot.memory_ = memory;
  return slot;
}

Result<parallel::DeviceBatch> BatchSlot::put(const SampleBatch& batch, kernels::Stream& stream) {
  if (stream.device().type == kernels::DeviceType::kCpu) {
    return batch.placed_at(batch.bytes().data());
  }
  const std::span<const std::byte> bytes = batch.bytes();
  CHECK(bytes.size() <= memory_.pinned.bytes);
  TRY(copied_.synchronize());
  std::memcpy(memory_.pinned.data, bytes.data(), bytes.size());
  TRY(kernels::copy_bytes(
      stream, {.to = memory_.device.data, .from = memory_.pinned.data, .bytes = bytes.size()}));
  TRY(copied_.record(stream.handle()));
  return batch.placed_at(memory_.device.data);
}

Result<std::unique_ptr<DeviceFeed>> DeviceFeed::create(
    BatchLoader& loader, kernels::Stream& compute,
    const std::array<parallel::BatchMemory, 2>& memory) {
  std::unique_ptr<DeviceFeed> feed(new DeviceFeed(loader, compute));
  const kernels::Device device = compute.device();
  TRY_ASSIGN(feed->copies_, kernels::Stream::create(device));
  for (size_t i = 0; i < memory.size(); ++i) {
    Slot& slot = feed->slots_[i];
    TRY_ASSIGN(slot.slot, BatchSlot::create(device, memory[i]));
    TRY_ASSIGN(slot.read, kernels::Event::create(device));
  }
  return feed;
}

// Its slots may be in use.
DeviceFeed::~DeviceFeed() {
  (void)copies_.synchronize();
  (void)compute_->synchronize();
}

// The copy waits for work that still reads the slot's previous batch.
Status DeviceFeed::load(Slot& slot) {
  const Result<const SampleBatch*> batch = loader_->next();
  slot.loaded = batch.ok() ? Status() : Status(batch.error());
  if (!batch.ok()) return {};
  TRY(slot.read.make_stream_wait(copies_.handle()));
  TRY_ASSIGN(slot.batch, slot.slot.put(**batch, copies_));
  return {};
}

// On the CPU the loader's batch is itself what is read, so that none may be taken ahead.
Result<std::optional<parallel::DeviceBatch>> DeviceFeed::next() {
  const bool is_cpu = compute_->device().type == kernels::DeviceType::kCpu;
  if (taken_ > 0) TRY(at(taken_ - 1).read.record(compute_->handle()));
  if (is_cpu || taken_ == 0) TRY(load(at(taken_)));
  Slot& slot = at(taken_);
  TRY(slot.loaded);
  TRY(slot.slot.make_stream_wait(*compute_));
  ++taken_;
  if (!is_cpu) TRY(load(at(taken_)));
  return std::optional(slot.batch);
}

}  // namespace lockstep::train
