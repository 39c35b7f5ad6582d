#include "agent/train/data/device_tokens.h"

#include <cstring>

namespace lockstep::train {

Result<TokenSlot> TokenSlot::create(kernels::Device device, const parallel::TokenMemory& memory) {
  CHECK(memory.pinned.bytes == memory.device.bytes);
  TokenSlot slot;
  TRY_ASSIGN(slot.copied_, kernels::Event::create(device));
  slot.memory_ = memory;
  return slot;
}

Result<parallel::DeviceBatch> TokenSlot::put(const TokenBatch& batch, kernels::Stream& stream) {
  if (stream.device().type == kernels::DeviceType::kCpu) {
    return parallel::DeviceBatch{batch.tokens.data(), batch.targets.data(), batch.rows,
                                 batch.counted};
  }
  const size_t bytes = batch.tokens.size() * sizeof(int32_t);
  CHECK(batch.targets.size() == batch.tokens.size() && 2 * bytes <= memory_.pinned.bytes);
  TRY(copied_.synchronize());
  auto* host = static_cast<std::byte*>(memory_.pinned.data);
  std::memcpy(host, batch.tokens.data(), bytes);
  std::memcpy(host + bytes, batch.targets.data(), bytes);
  TRY(kernels::copy_bytes(stream, {.to = memory_.device.data, .from = host, .bytes = 2 * bytes}));
  TRY(copied_.record(stream.handle()));
  auto* tokens = static_cast<int32_t*>(memory_.device.data);
  return parallel::DeviceBatch{tokens, tokens + batch.tokens.size(), batch.rows, batch.counted};
}

Result<std::unique_ptr<TokenFeed>> TokenFeed::create(
    BatchLoader& loader, kernels::Stream& compute,
    const std::array<parallel::TokenMemory, 2>& memory) {
  std::unique_ptr<TokenFeed> feed(new TokenFeed(loader, compute));
  const kernels::Device device = compute.device();
  TRY_ASSIGN(feed->copies_, kernels::Stream::create(device));
  for (size_t i = 0; i < memory.size(); ++i) {
    Slot& slot = feed->slots_[i];
    TRY_ASSIGN(slot.slot, TokenSlot::create(device, memory[i]));
    TRY_ASSIGN(slot.read, kernels::Event::create(device));
  }
  return feed;
}

// Its slots may be in use.
TokenFeed::~TokenFeed() {
  (void)copies_.synchronize();
  (void)compute_->synchronize();
}

// The copy waits for work that still reads the slot's previous batch.
Status TokenFeed::load(Slot& slot) {
  const Result<const TokenBatch*> batch = loader_->next();
  slot.loaded = batch.ok() ? Status() : Status(batch.error());
  if (!batch.ok()) return {};
  TRY(slot.read.make_stream_wait(copies_.handle()));
  TRY_ASSIGN(slot.tokens, slot.slot.put(**batch, copies_));
  return {};
}

// On the CPU the loader's batch is itself what is read, so that none may be taken ahead.
Result<std::optional<parallel::DeviceBatch>> TokenFeed::next() {
  const bool is_cpu = compute_->device().type == kernels::DeviceType::kCpu;
  if (taken_ > 0) TRY(at(taken_ - 1).read.record(compute_->handle()));
  if (is_cpu || taken_ == 0) TRY(load(at(taken_)));
  Slot& slot = at(taken_);
  TRY(slot.loaded);
  TRY(slot.slot.make_stream_wait(*compute_));
  ++taken_;
  if (!is_cpu) TRY(load(at(taken_)));
  return std::optional(slot.tokens);
}

}  // namespace lockstep::train
