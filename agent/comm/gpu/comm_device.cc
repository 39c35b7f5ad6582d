#include "agent/comm/gpu/comm_device.h"

#include <utility>

#include "agent/comm/gpu/device_math.h"
#include "agent/comm/reduce.h"

namespace lockstep {
namespace {

class EventMark final : public Mark {
 public:
  explicit EventMark(Event event) : event_(std::move(event)) {}
  Result<bool> passed() const override { return event_.passed(); }
  Status make_stream_wait(void* stream) const override { return event_.make_stream_wait(stream); }

 private:
  Event event_;
};

// Returns a pointer to what the owner owns; it keeps the owner alive.
template <class Owner>
std::shared_ptr<void> shared(Owner owner, void* (*what)(const Owner&)) {
  auto kept = std::make_shared<Owner>(std::move(owner));
  void* shown = what(*kept);
  return {std::move(kept), shown};
}

class KernelsDevice final : public CommDevice {
 public:
  explicit KernelsDevice(Device device) : device_(device) {}
  Device device() const override { return device_; }

  Result<std::shared_ptr<void>> create_stream() override {
    TRY_ASSIGN(Stream stream, Stream::create(device_));
    return shared<Stream>(std::move(stream), [](const Stream& s) { return s.handle(); });
  }
  Result<std::shared_ptr<void>> allocate(size_t bytes, std::string_view by) override {
    TRY_ASSIGN(Buffer buffer, Buffer::allocate(device_, bytes, by));
    return shared<Buffer>(std::move(buffer), [](const Buffer& b) { return b.data(); });
  }
  Result<std::shared_ptr<void>> allocate_pinned(size_t bytes, std::string_view by) override {
    TRY_ASSIGN(PinnedBuffer buffer, PinnedBuffer::allocate(device_, bytes, by));
    return shared<PinnedBuffer>(std::move(buffer), [](const PinnedBuffer& b) { return b.data(); });
  }
  Result<std::unique_ptr<Mark>> mark(void* stream) override {
    TRY_ASSIGN(Event event, Event::create(device_));
    TRY(event.record(stream));
    return std::unique_ptr<Mark>(std::make_unique<EventMark>(std::move(event)));
  }
  Status copy(void* stream, const CopyArgs& args) override {
    return copy_bytes(device_, stream, args);
  }
  Status to_boolean(void* stream, DataType type, const BooleanArgs& args) override {
    if (device_.type == DeviceType::kCuda) {
      return device_math::to_boolean(device_.index, stream, type, args);
    }
    reduce(type, ReduceOp::kLor,
           {.into = args.to, .a = args.from, .b = args.from, .count = args.count});
    return {};
  }
  Status divide(void* stream, DataType type, const DivideArgs& args) override {
    if (device_.type == DeviceType::kCuda) {
      return device_math::divide(device_.index, stream, type, args);
    }
    divide_by_ranks(type, args.data, args.count, args.ranks);
    return {};
  }

 private:
  Device device_;
};

}  // namespace

std::unique_ptr<CommDevice> make_comm_device(Device device) {
  return std::make_unique<KernelsDevice>(device);
}

}  // namespace lockstep
