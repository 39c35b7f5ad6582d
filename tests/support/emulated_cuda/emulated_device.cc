#include "tests/support/emulated_cuda/emulated_device.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/device/device_errors.h"
#include "tests/support/emulated_cuda/pinned_memory.h"

namespace lockstep::emulated_cuda {

namespace {

// Handles are not valid pointers; their lowest byte is the device index.
constexpr int kIndexBits = 8;
void* handle_of(uint64_t number, int index) {
  return reinterpret_cast<void*>(number << kIndexBits | static_cast<uint64_t>(index));
}

}  // namespace

int index_of_handle(const void* handle) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(handle) & ((1u << kIndexBits) - 1));
}

EmulatedDevice::EmulatedDevice(int index, uint64_t seed) : index_(index), random_(seed) {
  draw_schedule();
}

Error EmulatedDevice::failed_call(const char* call, const std::string& words) const {
  return kernels::call_error({call, __FILE__, __LINE__, {kernels::DeviceType::kCuda, index_}},
                             words);
}

// ---- Order

void EmulatedDevice::draw_schedule() {
  static constexpr ScheduleTiming kTimings[] = {ScheduleTiming::kImmediately,
                                                ScheduleTiming::kSometimes, ScheduleTiming::kOnWait,
                                                ScheduleTiming::kOnWait};
  schedule_ = {.timing = kTimings[random_.below(std::size(kTimings))],
               .ranked = random_.below(2) == 0};
  for (auto& [handle, queue] : queues_) queue.rank = random_.next_u32();
}

// Executes one operation of the stream whose turn it is; returns false if none can continue.
bool EmulatedDevice::advance() {
  order_.clear();
  for (auto at = queues_.begin(); at != queues_.end();) {
    Queue& queue = at->second;
    if (queue.operations.empty() && queue.is_destroyed) {
      at = queues_.erase(at);
      continue;
    }
    if (!queue.operations.empty()) order_.push_back(&queue);
    ++at;
  }
  if (schedule_.ranked) {
    std::ranges::sort(order_, {}, &Queue::rank);
  } else {
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
  }
  return std::ranges::any_of(order_, [this](Queue* queue) { return advance(*queue); });
}

bool EmulatedDevice::advance(Queue& queue) {
  const Operation& next = queue.operations.front();
  if (next.after != nullptr && !next.after->passed) return false;
  if (next.blocking != nullptr && !run_blocking(next.blocking)) return false;
  if (next.mark != nullptr) *next.mark = {.passed = true, .at = SystemClock().now()};
  if (next.work != nullptr) {
    if (const Status status = next.work(random_.next_u64()); !status.ok()) {
      break_with(status.error());
      return true;
    }
  }
  queue.operations.pop_front();
  ++queue.done;
  return true;
}

// Starts the work's thread if necessary; returns whether the work is over.
bool EmulatedDevice::run_blocking(const std::shared_ptr<BlockingWork>& blocking) {
  if (blocking->done) {
    blocking->thread.join();
    std::erase(blocking_, blocking);
    return true;
  }
  if (blocking->thread.joinable()) return false;
  pages_.open();
  blocking_.push_back(blocking);
  blocking->thread = std::thread([this, raw = blocking.get()] {
    raw->work();
    const std::lock_guard lock(mutex_);
    pages_.close();
    raw->done = true;
    changed_.notify_all();
  });
  return false;
}

void EmulatedDevice::break_with(Error error) {
  broken_ = std::move(error);
  drop_all();
  changed_.notify_all();
}

void EmulatedDevice::drop_all() {
  for (auto& [handle, queue] : queues_) {
    for (Operation& operation : queue.operations) {
      if (operation.mark != nullptr) operation.mark->passed = true;
    }
    queue.done += queue.operations.size();
    queue.operations.clear();
  }
}

// Executes what may run while the host does other things.
void EmulatedDevice::run_some() {
  if (schedule_.timing == ScheduleTiming::kOnWait) return;
  uint64_t most = std::numeric_limits<uint64_t>::max();
  if (schedule_.timing == ScheduleTiming::kSometimes)
    most = random_.below(4) == 0 ? random_.below(8) : 0;
  if (most == 0) return;
  const DevicePages::Opened opened(pages_);
  while (most > 0 && !broken_ && advance()) --most;
  changed_.notify_all();
}

template <class Done>
Status EmulatedDevice::wait_until(Lock& lock, const Done& done) {
  while (!broken_ && !done()) {
    bool moved = true;
    {
      const DevicePages::Opened opened(pages_);
      while (moved && !broken_ && !done()) moved = advance();
    }
    changed_.notify_all();
    // Then progress depends on work on other threads.
    if (!moved) changed_.wait(lock);
  }
  draw_schedule();
  return broken_ ? Status(*broken_) : Status();
}

Status EmulatedDevice::wait_for(Lock& lock, Queue& queue) {
  return wait_until(lock, [&queue, until = queue.issued] { return queue.done >= until; });
}

// ---- Streams

Result<EmulatedDevice::Queue*> EmulatedDevice::queue_of(void* stream) {
  if (broken_) return *broken_;
  const auto at = queues_.find(stream);
  if (at == queues_.end() || at->second.is_destroyed) {
    return failed_call("stream lookup", "no such stream");
  }
  return &at->second;
}

void EmulatedDevice::push(Queue& queue, Operation operation) {
  queue.operations.push_back(std::move(operation));
  ++queue.issued;
  run_some();
}

Result<void*> EmulatedDevice::create_stream() {
  const Lock lock(mutex_);
  if (broken_) return *broken_;
  void* handle = handle_of(++handles_, index_);
  queues_[handle].rank = random_.next_u32();
  return handle;
}

// Work that was already issued still runs.
void EmulatedDevice::destroy_stream(void* stream) {
  const Lock lock(mutex_);
  const auto at = queues_.find(stream);
  CHECK(at != queues_.end() && !at->second.is_destroyed);
  at->second.is_destroyed = true;
}

bool EmulatedDevice::has(void* stream) {
  const Lock lock(mutex_);
  return queues_.contains(stream);
}

Status EmulatedDevice::synchronize(void* stream) {
  Lock lock(mutex_);
  TRY_ASSIGN(Queue* const queue, queue_of(stream));
  return wait_for(lock, *queue);
}

Status EmulatedDevice::issue(void* stream, Work work) {
  const Lock lock(mutex_);
  TRY_ASSIGN(Queue* const queue, queue_of(stream));
  push(*queue, {.work = std::move(work), .blocking = nullptr, .after = nullptr, .mark = nullptr});
  return {};
}

Status EmulatedDevice::issue_blocking(void* stream, std::function<void()> work) {
  const Lock lock(mutex_);
  TRY_ASSIGN(Queue* const queue, queue_of(stream));
  auto blocking = std::make_shared<BlockingWork>();
  blocking->work = std::move(work);
  push(*queue,
       {.work = nullptr, .blocking = std::move(blocking), .after = nullptr, .mark = nullptr});
  return {};
}

// ---- Events

Result<EmulatedDevice::EventState*> EmulatedDevice::event_of(void* event) {
  if (broken_) return *broken_;
  const auto at = events_.find(event);
  if (at == events_.end()) return failed_call("event lookup", "no such event");
  return &at->second;
}

Result<void*> EmulatedDevice::create_event(bool is_timed) {
  const Lock lock(mutex_);
  if (broken_) return *broken_;
  void* handle = handle_of(++handles_, index_);
  events_[handle].is_timed = is_timed;
  return handle;
}

void EmulatedDevice::destroy_event(void* event) {
  const Lock lock(mutex_);
  CHECK(events_.erase(event) == 1);
}

Status EmulatedDevice::record(void* event, void* stream) {
  const Lock lock(mutex_);
  TRY_ASSIGN(EventState* const state, event_of(event));
  TRY_ASSIGN(Queue* const queue, queue_of(stream));
  state->point = std::make_shared<Point>();
  push(*queue, {.work = nullptr, .blocking = nullptr, .after = nullptr, .mark = state->point});
  return {};
}

Status EmulatedDevice::stream_wait_event(void* event, void* stream) {
  const Lock lock(mutex_);
  TRY_ASSIGN(EventState* const state, event_of(event));
  TRY_ASSIGN(Queue* const queue, queue_of(stream));
  if (state->point == nullptr) return {};
  push(*queue, {.work = nullptr, .blocking = nullptr, .after = state->point, .mark = nullptr});
  return {};
}

// Executes some operations, so that polling succeeds eventually.
Result<bool> EmulatedDevice::passed(void* event) {
  const Lock lock(mutex_);
  TRY_ASSIGN(EventState* const state, event_of(event));
  const std::shared_ptr<Point> point = state->point;
  if (point == nullptr) return true;
  if (!point->passed) {
    const DevicePages::Opened opened(pages_);
    for (uint64_t most = 1 + random_.below(16); most > 0 && !broken_ && advance();) --most;
    changed_.notify_all();
  }
  if (broken_) return *broken_;
  return point->passed;
}

Status EmulatedDevice::synchronize_event(void* event) {
  Lock lock(mutex_);
  TRY_ASSIGN(EventState* const state, event_of(event));
  const std::shared_ptr<Point> point = state->point;
  if (point == nullptr) return {};
  return wait_until(lock, [&point] { return point->passed; });
}

Result<double> EmulatedDevice::elapsed(const kernels::cuda_api::EventPair& events) {
  const Lock lock(mutex_);
  TRY_ASSIGN(const EventState* const from, event_of(events.from));
  TRY_ASSIGN(const EventState* const to, event_of(events.to));
  for (const EventState* event : {from, to}) {
    if (!event->is_timed) return failed_call("cudaEventElapsedTime", "the event is not timed");
    if (event->point == nullptr)
      return failed_call("cudaEventElapsedTime", "the event was never recorded");
    if (!event->point->passed)
      return failed_call("cudaEventElapsedTime", "the event has not passed");
  }
  return to_seconds(to->point->at - from->point->at);
}

// ---- Memory

kernels::DeviceMemory EmulatedDevice::memory() {
  const Lock lock(mutex_);
  return {.free_bytes = kMemoryBytes - pages_.allocated_bytes(), .total_bytes = kMemoryBytes};
}

Result<void*> EmulatedDevice::allocate(size_t bytes, std::string_view by) {
  const Lock lock(mutex_);
  if (broken_) return *broken_;
  const uint64_t free_bytes = kMemoryBytes - pages_.allocated_bytes();
  void* data = bytes > free_bytes ? nullptr : pages_.allocate(bytes, by);
  if (data != nullptr) return data;
  return kernels::out_of_memory({.device = {kernels::DeviceType::kCuda, index_},
                                 .bytes = bytes,
                                 .by = by,
                                 .free_bytes = free_bytes,
                                 .total_bytes = kMemoryBytes});
}

void EmulatedDevice::release(void* data) {
  Lock lock(mutex_);
  if (random_.below(2) == 0) {
    const auto is_idle = [this] {
      return std::ranges::all_of(queues_, [](auto& q) { return q.second.operations.empty(); });
    };
    (void)wait_until(lock, is_idle);
  }
  pages_.release(data);
}

Result<EmulatedDevice::Place> EmulatedDevice::place_of(const void* data, size_t bytes) const {
  for (const auto& [place, from_here] : {std::pair(Place::kDevice, pages_.bytes_from(data)),
                                         std::pair(Place::kPinned, pinned_bytes_from(data))}) {
    if (from_here >= bytes) return place;
    if (from_here > 0) {
      return failed_call("cudaMemcpyAsync", std::to_string(bytes) +
                                                " bytes where an allocation has " +
                                                std::to_string(from_here) + " left");
    }
  }
  return Place::kPageable;
}

Status EmulatedDevice::copy(void* stream, const kernels::CopyArgs& args) {
  Lock lock(mutex_);
  TRY_ASSIGN(Queue* const queue, queue_of(stream));
  TRY_ASSIGN(const Place to, place_of(args.to, args.bytes));
  TRY_ASSIGN(const Place from, place_of(args.from, args.bytes));
  const bool is_pageable = to == Place::kPageable || from == Place::kPageable;
  const bool of_host = to != Place::kDevice && from != Place::kDevice;
  push(*queue, {.work =
                    [args](uint64_t) {
                      std::memmove(args.to, args.from, args.bytes);
                      return Status();
                    },
                .blocking = nullptr,
                .after = nullptr,
                .mark = nullptr});
  if (of_host || (is_pageable && random_.below(2) == 0)) return wait_for(lock, *queue);
  return {};
}

// ---- For tests

void EmulatedDevice::set_seed(uint64_t seed) {
  const Lock lock(mutex_);
  random_ = Random(seed);
  draw_schedule();
}

void EmulatedDevice::reset() {
  Lock lock(mutex_);
  drop_all();
  changed_.wait(lock, [this] { return std::ranges::all_of(blocking_, &BlockingWork::done); });
  for (const auto& blocking : blocking_) blocking->thread.join();
  blocking_.clear();
  broken_.reset();
  changed_.notify_all();
}

}  // namespace lockstep::emulated_cuda
