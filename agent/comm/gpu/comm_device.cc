#include "agent/comm/gpu/comm_device.h"

#include <utility>

#include "agent/comm/gpu/device_math.h"
#include "agent/comm/reduce.h"

namespace lockstep::comm {
namespace {

class EventMark final : public Mark {
 public:
  explicit EventMark(kernels::Event event) : event_(std::move(event)) {}
  Result<bool> passed() const override { return event_.passed(); }
  Status make_stream_wait(void* stream) const override { return event_.make_stream_wait(stream); }

 private:
  kernels::Event event_;
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
  explicit KernelsDevice(kernels::Device device) : device_(device) {}
  kernels::Device device() const override { return device_; }

  Result<std::shared_ptr<void>> create_stream() override {
    TRY_ASSIGN(kernels::Stream stream, kernels::Stream::create(device_));
    return shared<kernels::Stream>(std::move(stream),
                                   [](const kernels::Stream& s) { return s.handle(); });
  }
  Result<std::shared_ptr<void>> allocate(size_t bytes, std::string_view by) override {
    TRY_ASSIGN(kernels::Buffer buffer, kernels::Buffer::allocate(device_, bytes, by));
    return shared<kernels::Buffer>(std::move(buffer),
                                   [](const kernels::Buffer& b) { return b.data(); });
  }
  Result<std::shared_ptr<void>> allocate_pinned(size_t bytes, std::string_view by) override {
    TRY_ASSIGN(kernels::PinnedBuffer buffer, kernels::PinnedBuffer::allocate(device_, bytes, by));
    return shared<kernels::PinnedBuffer>(std::move(buffer),
                                         [](const kernels::PinnedBuffer& b) { return b.data(); });
  }
  Result<std::unique_ptr<Mark>> mark(void* stream) override {
    TRY_ASSIGN(kernels::Event event, kernels::Event::create(device_));
    TRY(event.record(stream));
    return std::unique_ptr<Mark>(std::make_unique<EventMark>(std::move(event)));
  }
  Status copy(void* stream, const kernels::CopyArgs& args) override {
    return kernels::copy_bytes(device_, stream, args);
  }
  Status to_boolean(void* stream, DataType type, const BooleanArgs& args) override {
    if (device_.type == kernels::DeviceType::kCuda) {
      return device_math::to_boolean(device_.index, stream, type, args);
    }
    reduce(type, ReduceOp::kLor,
           {.into = args.to, .a = args.from, .b = args.from, .count = args.count});
    return {};
  }
  Status divide(void* stream, DataType type, const DivideArgs& args) override {
    if (device_.type == kernels::DeviceType::kCuda) {
      return device_math::divide(device_.index, stream, type, args);
    }
    divide_by_ranks(type, args.data, args.count, args.ranks);
    return {};
  }

 private:
  kernels::Device device_;
};

}  // namespace

std::unique_ptr<CommDevice> make_comm_device(kernels::Device device) {
  return std::make_unique<KernelsDevice>(device);
}

}  // namespace lockstep::comm
