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

// A CUDA device whose streams are queues. What is issued waits in its stream; the host threads that
// issue, ask and wait carry it out, in an order drawn from a seed that keeps to what CUDA promises
// and to nothing beyond it:
//  - in a stream, the order in which it was issued; between streams, events alone: a stream runs
//    far ahead of another or far behind it, whichever was issued first. Its own streams are
//    non-blocking ones: there is no null stream that they wait for;
//  - what is issued may be done at once, some time later, or not before somebody waits for it;
//  - memory of the host that is page-locked is read and written when the copy's turn comes;
//    pageable memory when its turn comes, or before the call returns, in either case behind what
//    the stream was given before;
//  - giving memory back waits for the device, or doesn't; destroying a stream doesn't;
//  - what fails in a kernel breaks the device: every call fails with it from then on, and what was
//    issued is dropped;
//  - a timed event keeps the host's time at which it was carried out.
// Sources: NVIDIA, CUDA Runtime API 13.0: "API synchronization behavior" (copies of pageable memory
// "might be synchronous", all others but host to host "should be fully asynchronous"), "Stream
// Management" (cudaStreamDestroy returns at once, cudaStreamWaitEvent), "Event Management" (what
// was never recorded has passed; a record takes the place of the one before), "Data types used by
// CUDA Runtime" (errors after which "any further CUDA work will return the same error").
//
// Its memory can be touched by what is carried out alone (DevicePages). Of several host threads one
// at a time carries something out on a device.
namespace lockstep::emulated_cuda {

// What a stream is given. It may be called on any host thread, once. An error breaks the device.
// The seed is for orders within it.
using Work = std::function<Status(uint64_t seed)>;

class EmulatedDevice {
 public:
  // As a small GPU's; what is asked for beyond it is refused as there.
  static constexpr uint64_t kMemoryBytes = uint64_t{4} << 30;

  EmulatedDevice(int index, uint64_t seed);

  Result<void*> create_stream();
  void destroy_stream(void* stream);
  bool has(void* stream);
  Status synchronize(void* stream);

  Result<void*> create_event(bool is_timed);
  void destroy_event(void* event);
  Status record(void* event, void* stream);
  Status delay(void* event, void* stream);
  Result<bool> passed(void* event);
  Status synchronize_event(void* event);
  Result<double> elapsed(const cuda_api::EventPair& events);

  Result<void*> allocate(size_t bytes, std::string_view by);
  void release(void* data);
  Status copy(void* stream, const CopyArgs& args);
  DeviceMemory memory();

  Status issue(void* stream, Work work);
  Status issue_beside(void* stream, std::function<void()> work);
  void set_seed(uint64_t seed);
  void reset();

 private:
  // Where an event was recorded.
  struct Point {
    bool passed = false;
    TimePoint at;
  };
  struct EventState {
    bool is_timed = false;
    std::shared_ptr<Point> point;  // of the last record
  };
  struct Beside {
    std::function<void()> work;
    std::thread thread;
    bool over = false;
  };
  // One of: work, a wait, a mark.
  struct Operation {
    Work work;
    std::shared_ptr<Beside> beside;
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
  enum class Pace : uint8_t { kAtOnce, kAtTimes, kWhenWaitedFor };
  // What goes on when the host doesn't wait, and which stream is the first to.
  struct Mood {
    Pace pace = Pace::kWhenWaitedFor;
    bool ranked = false;  // each stream as far as it comes before the next one of the ranking
  };
  enum class Place : uint8_t { kDevice, kPinned, kPageable };
  using Lock = std::unique_lock<std::mutex>;

  Result<Queue*> queue_of(void* stream);
  Result<EventState*> event_of(void* event);
  Result<Place> place_of(const void* data, size_t bytes) const;
  Error wrong(const char* call, const std::string& words) const;

  void push(Queue& queue, Operation operation);
  void draw_mood();
  void go_on();
  bool advance();
  bool advance(Queue& queue);
  bool run_beside(const std::shared_ptr<Beside>& beside);
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
  Mood mood_;
  uint64_t handles_ = 0;  // that were ever given out
  std::map<void*, Queue> queues_;
  std::map<void*, EventState> events_;
  std::vector<Queue*> order_;                   // reused
  std::list<std::shared_ptr<Beside>> besides_;  // whose threads run, or are to be joined
  std::optional<Error> broken_;
};

// Of the device that a stream or an event is of.
int index_of_handle(const void* handle);

}  // namespace lockstep::emulated_cuda
