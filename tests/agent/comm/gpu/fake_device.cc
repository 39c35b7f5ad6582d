#include "tests/agent/comm/gpu/fake_device.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "agent/comm/reduce.h"

namespace lockstep::test {

FakeStream::FakeStream() : thread_([this] { work(); }) {}

FakeStream::~FakeStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FakeStream::issue(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void FakeStream::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !busy_; });
}

void FakeStream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

namespace {

struct Point {
  std::mutex mutex;
  std::condition_variable changed;
  bool passed = false;
};

class FakeMark final : public comm::Mark {
 public:
  explicit FakeMark(std::shared_ptr<Point> point) : point_(std::move(point)) {}
  Result<bool> passed() const override {
    const std::lock_guard lock(point_->mutex);
    return point_->passed;
  }
  Status make_stream_wait(void* stream) const override {
    fake_stream(stream).issue([point = point_] {
      std::unique_lock lock(point->mutex);
      point->changed.wait(lock, [&point] { return point->passed; });
    });
    return {};
  }

 private:
  std::shared_ptr<Point> point_;
};

}  // namespace

Result<std::shared_ptr<void>> FakeDevice::create_stream() {
  auto* stream = new FakeStream;
  const std::lock_guard lock(mutex_);
  streams_.insert(stream);
  return std::shared_ptr<void>(stream, [this](void* gone) {
    {
      const std::lock_guard lock(mutex_);
      streams_.erase(static_cast<FakeStream*>(gone));
    }
    delete static_cast<FakeStream*>(gone);
  });
}

// Like cudaFree: everything that was issued finishes first.
void FakeDevice::drain() {
  std::set<FakeStream*> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  for (FakeStream* stream : streams) stream->drain();
}

Result<std::shared_ptr<void>> FakeDevice::allocate(size_t bytes, std::string_view) {
  return std::shared_ptr<void>(::operator new (bytes, std::align_val_t{64}), [this](void* memory) {
    drain();
    ::operator delete (memory, std::align_val_t{64});
  });
}

Result<std::shared_ptr<void>> FakeDevice::allocate_pinned(size_t bytes, std::string_view by) {
  {
    const std::lock_guard lock(mutex_);
    pinned_bytes_ += bytes;
  }
  return allocate(bytes, by);
}

Result<std::unique_ptr<comm::Mark>> FakeDevice::mark(void* stream) {
  auto point = std::make_shared<Point>();
  fake_stream(stream).issue([point] {
    const std::lock_guard lock(point->mutex);
    point->passed = true;
    point->changed.notify_all();
  });
  return std::unique_ptr<comm::Mark>(std::make_unique<FakeMark>(point));
}

Status FakeDevice::issue(void* stream, std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (calls_left_ == 0) return unavailable("[cuda] the fake device has failed");
    if (calls_left_ > 0) --calls_left_;
  }
  fake_stream(stream).issue(std::move(task));
  return {};
}

Status FakeDevice::copy(void* stream, const kernels::CopyArgs& args) {
  return issue(stream, [args] { std::memcpy(args.to, args.from, args.bytes); });
}

Status FakeDevice::to_boolean(void* stream, comm::DataType type, const comm::BooleanArgs& args) {
  return issue(stream, [type, args] {
    comm::reduce(type, comm::ReduceOp::kLor,
                 {.into = args.to, .a = args.from, .b = args.from, .count = args.count});
  });
}

Status FakeDevice::divide(void* stream, comm::DataType type, const DivideArgs& args) {
  return issue(stream,
               [type, args] { comm::divide_by_ranks(type, args.data, args.count, args.ranks); });
}

void FakeDevice::fail_after(int calls) {
  const std::lock_guard lock(mutex_);
  calls_left_ = calls;
}

size_t FakeDevice::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return pinned_bytes_;
}

}  // namespace lockstep::test
