#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/result.h"
#include "kernels/device/cuda_api.h"
#include "kernels/device/device.h"
#include "tests/support/emulated_cuda/device_pages.h"

// An emulated CUDA device whose streams are queues. Operations wait in their stream. Host threads
// that issue, poll or wait execute them, in an order drawn from a seed. The order keeps every
// guarantee of CUDA, and no others:
// - Order: in a stream, the order of issue. Between streams only events give an order: a stream may
//   run far ahead of another or far behind it, whichever was issued first. Streams are
//   non-blocking: they do not wait for a null stream.
// - Time: an operation may run immediately, some time later, or only when somebody waits for it.
// - Host memory: pinned memory is accessed when the copy's turn comes. Pageable memory is accessed
//   at that time or before the call returns, in both cases after the stream's earlier work.
// - Freeing memory may or may not wait for the device; destroying a stream does not.
// - An error in a kernel breaks the device: from then on every call fails with it, and issued work
//   is dropped.
// - A timed event records the host's time at which it was executed.
// Sources: NVIDIA, CUDA Runtime API 13.0: "API synchronization behavior" (copies of pageable memory
// "might be synchronous", all others but host to host "should be fully asynchronous"), "Stream
// Management" (cudaStreamDestroy returns immediately, cudaStreamWaitEvent), "Event Management" (an
// event that was never recorded has passed; a record replaces the previous one), "Data types used
// by CUDA Runtime" (errors after which "any further CUDA work will return the same error").
//
// Only executing operations can access the device's memory (DevicePages). One host thread at a time
// executes operations of a device.
namespace lockstep::emulated_cuda {

// An operation of a stream. May be called on any host thread, once. An error breaks the device. The
// seed is for orders inside the operation.
using Work = std::function<Status(uint64_t seed)>;

class EmulatedDevice {
 public:
  // Like a small GPU's; larger requests fail as on a GPU.
  static constexpr uint64_t kMemoryBytes = uint64_t{16} << 30;

  EmulatedDevice(int index, uint64_t seed);

  Result<void*> create_stream();
  void destroy_stream(void* stream);
  bool has(void* stream);
  Status synchronize(void* stream);

  Result<void*> create_event(bool is_timed);
  void destroy_event(void* event);
  Status record(void* event, void* stream);
  Status stream_wait_event(void* event, void* stream);
  Result<bool> passed(void* event);
  Status synchronize_event(void* event);
  Result<double> elapsed(const kernels::cuda_api::EventPair& events);

  Result<void*> allocate(size_t bytes, std::string_view by);
  void release(void* data);
  Status copy(void* stream, const kernels::CopyArgs& args);
  kernels::DeviceMemory memory();

  Status issue(void* stream, Work work);
  Status issue_blocking(void* stream, std::function<void()> work);
  void set_seed(uint64_t seed);
  void reset();

 private:
  // The position at which an event was recorded.
  struct Point {
    bool passed = false;
    TimePoint at;
  };
  struct EventState {
    bool is_timed = false;
    std::shared_ptr<Point> point;  // of the last record
  };
  struct BlockingWork {
    std::function<void()> work;
    std::thread thread;
    bool done = false;
  };
  // Exactly one of: work, work on its own thread, a wait, a mark.
  struct Operation {
    Work work;
    std::shared_ptr<BlockingWork> blocking;
    std::shared_ptr<Point> after;
    std::shared_ptr<Point> mark;
  };
  struct Queue {
    std::deque<Operation> operations;
    uint64_t issued = 0;
    uint64_t done = 0;
    uint32_t rank = 0;
    bool is_destroyed = false;
  };
  enum class ScheduleTiming : uint8_t { kImmediately, kSometimes, kOnWait };
  // Determines what runs while the host does not wait, and which stream goes first.
  struct SchedulePolicy {
    ScheduleTiming timing = ScheduleTiming::kOnWait;
    bool ranked = false;  // each stream runs as far as it can before the next one in the ranking
  };
  enum class Place : uint8_t { kDevice, kPinned, kPageable };
  using Lock = std::unique_lock<std::mutex>;

  Result<Queue*> queue_of(void* stream);
  Result<EventState*> event_of(void* event);
  Result<Place> place_of(const void* data, size_t bytes) const;
  Error failed_call(const char* call, const std::string& words) const;

  void push(Queue& queue, Operation operation);
  void draw_schedule();
  void run_some();
  bool advance();
  bool advance(Queue& queue);
  bool run_blocking(const std::shared_ptr<BlockingWork>& blocking);
  void break_with(Error error);
  void drop_all();
  template <class Done>
  Status wait_until(Lock& lock, const Done& done);
  Status wait_for(Lock& lock, Queue& queue);

  const int index_;
  std::mutex mutex_;
  std::condition_variable changed_;
  DevicePages pages_;
  Random random_;
  SchedulePolicy schedule_;
  uint64_t handles_ = 0;  // number of handles ever created
  std::map<void*, Queue> queues_;
  std::map<void*, EventState> events_;
  std::vector<Queue*> order_;                          // reused between calls
  std::list<std::shared_ptr<BlockingWork>> blocking_;  // their threads run or must be joined
  std::optional<Error> broken_;
};

// Returns the index of the device that a stream or event belongs to.
int index_of_handle(const void* handle);

}  // namespace lockstep::emulated_cuda
