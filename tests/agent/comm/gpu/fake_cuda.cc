// The counterpart of kernels/device/cuda/cuda_api.cc for fake devices.
#include "tests/agent/comm/gpu/fake_cuda.h"

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "kernels/device/cuda_api.h"

namespace lockstep::test {
namespace {

constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;

struct Gpus {
  std::array<std::shared_ptr<FakeDevice>, kFakeGpus> devices;
  std::mutex mutex;
  std::map<void*, std::shared_ptr<void>> owned;  // streams and memory, by their address

  Gpus() {
    for (int index = 0; index < kFakeGpus; ++index) {
      devices[static_cast<size_t>(index)] = std::make_shared<FakeDevice>(index);
    }
  }
  void* keep(std::shared_ptr<void> thing) {
    const std::lock_guard lock(mutex);
    void* address = thing.get();
    owned.emplace(address, std::move(thing));
    return address;
  }
  // Freeing may wait for streams of the device.
  void drop(void* address) {
    std::shared_ptr<void> thing;
    const std::lock_guard lock(mutex);
    const auto found = owned.find(address);
    if (found == owned.end()) return;
    thing = std::move(found->second);
    owned.erase(found);
  }
};

Gpus& gpus() {
  static Gpus all;
  return all;
}

// Like cudaEvent_t: a stream that waits for it waits for the point where it was last recorded.
struct FakeEvent {
  std::shared_ptr<comm::Mark> mark;
};

FakeEvent& event_of(void* event) {
  return *static_cast<FakeEvent*>(event);
}

Status expect_gpu(int index) {
  if (index >= 0 && index < kFakeGpus) return {};
  return not_found("[describe] expected a CUDA device index below " + std::to_string(kFakeGpus) +
                   ", got " + std::to_string(index));
}

}  // namespace

std::shared_ptr<FakeDevice> fake_gpu(int index) {
  return gpus().devices[static_cast<size_t>(index)];
}

}  // namespace lockstep::test

namespace lockstep::kernels::cuda_api {

using test::event_of;
using test::expect_gpu;
using test::fake_gpu;
using test::gpus;

int device_count() {
  return test::kFakeGpus;
}

Result<DeviceInfo> describe(int index) {
  TRY(expect_gpu(index));
  return DeviceInfo{.name = "fake", .memory_bytes = test::kMemoryBytes, .bus = "fake"};
}

Result<DeviceMemory> memory_of(int index) {
  TRY(expect_gpu(index));
  return DeviceMemory{.free_bytes = test::kMemoryBytes, .total_bytes = test::kMemoryBytes};
}

Result<PeerAccess> peer_access(int, int) {
  return PeerAccess{};
}

Result<void*> create_stream(int index) {
  TRY(expect_gpu(index));
  TRY_ASSIGN(std::shared_ptr<void> stream, test::fake_gpu(index)->create_stream());
  return gpus().keep(std::move(stream));
}

void destroy_stream(void* stream) {
  gpus().drop(stream);
}

Status synchronize(int, void* stream) {
  test::fake_stream(stream).drain();
  return {};
}

Result<void*> create_event(int index, bool is_timed) {
  TRY(expect_gpu(index));
  if (is_timed) return unavailable("[fake] no events with time");
  return static_cast<void*>(new test::FakeEvent);
}

void destroy_event(void* event) {
  delete static_cast<test::FakeEvent*>(event);
}

Status record(int index, void* event, void* stream) {
  TRY_ASSIGN(event_of(event).mark, test::fake_gpu(index)->mark(stream));
  return {};
}

Status stream_wait_event(int, void* event, void* stream) {
  return event_of(event).mark == nullptr ? Status()
                                         : event_of(event).mark->make_stream_wait(stream);
}

Result<bool> passed(int, void* event) {
  return event_of(event).mark == nullptr ? Result<bool>(true) : event_of(event).mark->passed();
}

Status synchronize_event(int index, void* event) {
  for (;;) {
    TRY_ASSIGN(const bool is_over, passed(index, event));
    if (is_over) return {};
    std::this_thread::yield();
  }
}

Result<double> elapsed(int, const EventPair&) {
  return unavailable("[fake] no events with time");
}

Result<void*> allocate(int index, size_t bytes, std::string_view by) {
  TRY(expect_gpu(index));
  TRY_ASSIGN(std::shared_ptr<void> memory, test::fake_gpu(index)->allocate(bytes, by));
  std::memset(memory.get(), 0, bytes);
  return gpus().keep(std::move(memory));
}

void release(int, void* data) {
  gpus().drop(data);
}

Result<void*> allocate_pinned(int index, size_t bytes, std::string_view by) {
  TRY(expect_gpu(index));
  TRY_ASSIGN(std::shared_ptr<void> memory, test::fake_gpu(index)->allocate_pinned(bytes, by));
  return gpus().keep(std::move(memory));
}

void release_pinned(void* data) {
  gpus().drop(data);
}

// Fake devices read any memory of the host when the copy's turn comes.
Status pin(int index, const Workspace&, std::string_view) {
  return expect_gpu(index);
}

void unpin(void*) {}

Status copy(int index, void* stream, const CopyArgs& args) {
  return test::fake_gpu(index)->copy(stream, args);
}

}  // namespace lockstep::kernels::cuda_api
