#include "tests/kernels/gpu_cases.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "kernels/device/arena.h"
#include "kernels/device/device.h"
#include "kernels/device/host_pin.h"
#include "kernels/ops/op_table.h"
#include "tests/kernels/gpu_ops.h"

namespace lockstep::kernels {
namespace {

using test::expect;

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr size_t kBytes = size_t{1} << 20;

Status memory_is_zeroed_and_aligned() {
  TRY_ASSIGN(Stream stream, Stream::create(kGpu));
  TRY_ASSIGN(const Buffer buffer, Buffer::allocate(kGpu, kBytes));
  TRY(expect(reinterpret_cast<uintptr_t>(buffer.data()) % 256 == 0, "not aligned to 256 bytes"));
  std::vector<char> read(kBytes, 1);
  TRY(copy_bytes(stream, {.to = read.data(), .from = buffer.data(), .bytes = kBytes}));
  TRY(stream.synchronize());
  return expect(read == std::vector<char>(kBytes), "a byte that is not 0");
}

Status pinned_memory_goes_there_and_back() {
  TRY_ASSIGN(Stream stream, Stream::create(kGpu));
  TRY_ASSIGN(const Buffer buffer, Buffer::allocate(kGpu, kBytes));
  TRY_ASSIGN(const PinnedBuffer from, PinnedBuffer::allocate(kGpu, kBytes));
  TRY_ASSIGN(const PinnedBuffer to, PinnedBuffer::allocate(kGpu, kBytes));
  auto* bytes = static_cast<unsigned char*>(from.data());
  std::iota(bytes, bytes + kBytes, static_cast<unsigned char>(0));
  std::memset(to.data(), 0, kBytes);
  TRY(copy_bytes(stream, {.to = buffer.data(), .from = from.data(), .bytes = kBytes}));
  TRY(copy_bytes(stream, {.to = to.data(), .from = buffer.data(), .bytes = kBytes}));
  TRY(stream.synchronize());
  return expect(std::memcmp(from.data(), to.data(), kBytes) == 0, "other bytes came back");
}

// Copies to the device and back, without another copy on the host in between.
Status memory_from_elsewhere_is_page_locked() {
  constexpr size_t kPages = size_t{16} << 12;
  void* memory = ::mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TRY(expect(memory != MAP_FAILED, "no memory"));
  const std::unique_ptr<void, void (*)(void*)> mapped(memory,
                                                      [](void* at) { ::munmap(at, kPages); });
  TRY_ASSIGN(Stream stream, Stream::create(kGpu));
  TRY_ASSIGN(const HostPin pin, HostPin::lock(kGpu, {memory, kPages}, "a test"));
  TRY(expect(!HostPin::lock(kGpu, {memory, kPages}, "a test").ok(), "it was locked twice"));
  TRY_ASSIGN(const Buffer buffer, Buffer::allocate(kGpu, kPages));
  std::memset(memory, 7, kPages);
  TRY(copy_bytes(stream, {.to = buffer.data(), .from = memory, .bytes = kPages}));
  TRY(stream.synchronize());
  std::memset(memory, 0, kPages);
  TRY(copy_bytes(stream, {.to = memory, .from = buffer.data(), .bytes = kPages}));
  TRY(stream.synchronize());
  const std::vector<char> expected(kPages, 7);
  return expect(std::memcmp(memory, expected.data(), kPages) == 0, "other bytes came back");
}

// Runs a chain of copies over two streams: unless one waits for the event, the second copy may come
// first.
Status events_order_two_streams() {
  TRY_ASSIGN(Stream first, Stream::create(kGpu));
  TRY_ASSIGN(Stream second, Stream::create(kGpu));
  TRY_ASSIGN(Event event, Event::create(kGpu));
  TRY_ASSIGN(const bool passed_before, event.passed());
  TRY(expect(passed_before, "an event that was never recorded has not passed"));
  TRY_ASSIGN(const Buffer buffer, Buffer::allocate(kGpu, kBytes));
  TRY_ASSIGN(const PinnedBuffer from, PinnedBuffer::allocate(kGpu, kBytes));
  TRY_ASSIGN(const PinnedBuffer to, PinnedBuffer::allocate(kGpu, kBytes));
  for (int turn = 1; turn <= 100; ++turn) {
    std::memset(from.data(), turn, kBytes);
    TRY(copy_bytes(first, {.to = buffer.data(), .from = from.data(), .bytes = kBytes}));
    TRY(event.record(first.handle()));
    TRY(event.make_stream_wait(second.handle()));
    TRY(copy_bytes(second, {.to = to.data(), .from = buffer.data(), .bytes = kBytes}));
    TRY(second.synchronize());
    TRY(expect(std::memcmp(from.data(), to.data(), kBytes) == 0, "the second stream was first"));
    TRY_ASSIGN(const bool passed, event.passed());
    TRY(expect(passed, "an event before what is done has not passed"));
  }
  return event.synchronize();
}

// Measures copies that the host can time as well.
Status timed_events_keep_the_time_of_the_device() {
  constexpr size_t kMany = size_t{64} << 20;
  TRY_ASSIGN(Stream stream, Stream::create(kGpu));
  TRY_ASSIGN(Event before, Event::create_timed(kGpu));
  TRY_ASSIGN(Event after, Event::create_timed(kGpu));
  TRY_ASSIGN(const Buffer buffer, Buffer::allocate(kGpu, kMany));
  TRY_ASSIGN(const PinnedBuffer from, PinnedBuffer::allocate(kGpu, kMany));
  const SystemClock clock;
  const TimePoint begin = clock.now();
  TRY(before.record(stream.handle()));
  TRY(copy_bytes(stream, {.to = buffer.data(), .from = from.data(), .bytes = kMany}));
  TRY(after.record(stream.handle()));
  TRY(stream.synchronize());
  const double host = to_seconds(clock.now() - begin);
  TRY_ASSIGN(const double seconds, before.seconds_until(after));
  TRY(expect(seconds > 0 && seconds < 2 * host, std::to_string(seconds) + " s of the device, " +
                                                    std::to_string(host) + " of the host"));
  TRY_ASSIGN(const Event untimed, Event::create(kGpu));
  return expect(!before.seconds_until(untimed).ok(), "an event without time has one");
}

Status too_much_memory_is_refused_with_what_would_fit() {
  TRY_ASSIGN(const DeviceMemory memory, memory_of(kGpu));
  const auto buffer = Buffer::allocate(kGpu, memory.total_bytes * 2, "gradients");
  TRY(expect(!buffer.ok(), "twice the device's memory was given"));
  const std::string& words = buffer.error().message;
  TRY(expect(words.find("for gradients on CUDA device 0") != std::string::npos, words));
  TRY(expect(words.find("bytes fit") != std::string::npos, words));
  return Buffer::allocate(kGpu, 4096).ok() ? Status() : internal("nor is a little, afterwards");
}

// Uses a device that cannot exist. A copy to null would not do: no documentation calls that an
// error.
Status a_wrong_call_is_named_with_file_line_and_device() {
  const auto stream = Stream::create({DeviceType::kCuda, 999});
  TRY(expect(!stream.ok(), "a stream of device 999"));
  const std::string& words = stream.error().message;
  TRY(expect(words.find("cudaSetDevice") != std::string::npos, words));
  TRY(expect(words.find(".cc:") != std::string::npos, words));
  return expect(words.find("CUDA device 999") != std::string::npos, words);
}

// Fills more elements than a grid can have threads.
Status a_launch_that_no_gpu_takes_is_told_by_synchronize() {
  TRY_ASSIGN(Stream stream, Stream::create(kGpu));
  TRY_ASSIGN(const Buffer buffer, Buffer::allocate(kGpu, 16));
  TRY_ASSIGN(const OpTable* ops, device_ops(DeviceType::kCuda));
  ops->fill(stream, {.out = buffer.f32(), .count = int64_t{1} << 60});
  const Status status = stream.synchronize();
  TRY(expect(!status.ok(), "a launch of 2^50 blocks succeeded"));
  TRY(expect(status.error().message.find("fill") != std::string::npos, status.error().message));
  return stream.synchronize();
}

Status an_arena_gives_each_part_its_own_bytes() {
  TRY_ASSIGN(ArenaPlan plan, plan_arena({{ArenaUse::kGradients, "a", 1000},
                                         {ArenaUse::kParameters, "b", 3000},
                                         {ArenaUse::kWorkspace, "none", 0}}));
  TRY_ASSIGN(const Arena arena, Arena::allocate(kGpu, plan));
  TRY_ASSIGN(Stream stream, Stream::create(kGpu));
  const std::vector<char> ones(3000, 1);
  TRY(copy_bytes(stream, {.to = arena.at(1), .from = ones.data(), .bytes = 3000}));
  std::vector<char> read(1000, 1);
  TRY(copy_bytes(stream, {.to = read.data(), .from = arena.at(0), .bytes = 1000}));
  TRY(stream.synchronize());
  TRY(expect(arena.at(2) == nullptr, "memory for nothing"));
  return expect(read == std::vector<char>(1000), "two parts share bytes");
}

}  // namespace
}  // namespace lockstep::kernels

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::kernels;
  std::vector<test::GpuCase> cases = {
      {"memory is zeroed and aligned", memory_is_zeroed_and_aligned},
      {"pinned memory goes there and back", pinned_memory_goes_there_and_back},
      {"memory from elsewhere is page-locked", memory_from_elsewhere_is_page_locked},
      {"events order two streams", events_order_two_streams},
      {"timed events keep the time of the device", timed_events_keep_the_time_of_the_device},
      {"too much memory is refused with what would fit",
       too_much_memory_is_refused_with_what_would_fit},
      {"a wrong call is named with file, line and device",
       a_wrong_call_is_named_with_file_line_and_device},
      {"a launch that no GPU takes is told by synchronize",
       a_launch_that_no_gpu_takes_is_told_by_synchronize},
      {"an arena gives each part its own bytes", an_arena_gives_each_part_its_own_bytes},
  };
  for (test::GpuCase& one : test::gpu_op_cases()) cases.push_back(std::move(one));
  return test::run_gpu_cases(cases, {argv, static_cast<size_t>(argc)});
}
