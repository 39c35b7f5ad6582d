#include "agent/comm/operation.h"

#include <utility>

namespace lockstep::comm {

Scratch::Scratch(size_t bytes)
    : lines_(std::make_unique_for_overwrite<Line[]>(bytes / kFrameAlign + 1)), bytes_(bytes) {}

void Operation::begin(const Start& start) {
  const Task& task = start.task;
  group_ = start.group;
  limit_ = start.limit;
  receives = task.kind == Collective::kReceive;
  other_side = task.root;
  header = {.kind = receives ? Collective::kSend : task.kind,
            .type = task.type,
            .op = task.op,
            .algorithm = task.algorithm,
            .group = group_->id,
            .count = static_cast<uint64_t>(task.count),
            .root = static_cast<uint32_t>(task.root)};
  if (start.part.has_value()) {
    header.count = static_cast<uint64_t>(start.part->whole_count);
    header.part = start.part->index;
  }
  // The two sides of a send have different peers, so the header names none.
  if (header.kind == Collective::kSend) header.root = 0;
  make_plan(task, plan_);
  if (plan_.scratch() > scratch_.bytes()) {
    const bool is_pooled = home != nullptr && plan_.scratch() > OperationPool::kOwnScratchMax;
    scratch_ = is_pooled ? home->take_scratch(plan_.scratch()) : Scratch(plan_.scratch());
  }
  // Plans never write to what they call input.
  bases_ = {const_cast<std::byte*>(start.input), start.output, scratch_.data()};
  waiting = false;
  waits_for = {};
  current_peer = -1;
  status_ = {};
  blocked_.store(0, std::memory_order_relaxed);
  done_.store(false, std::memory_order_relaxed);
}

void Operation::finish(Status status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  done_.store(true, std::memory_order_release);
  // Notifies with the lock held: the owner, who takes the lock too, may destroy this right after.
  finished_.notify_all();
}

Status Operation::wait(Duration timeout) const {
  std::unique_lock lock(mutex_);
  if (done()) return status_;
  block();
  if (timeout == Duration::max()) {
    finished_.wait(lock, [this] { return done(); });
  } else if (!finished_.wait_for(lock, timeout, [this] { return done(); })) {
    blocked_.fetch_sub(1, std::memory_order_relaxed);
    return timed_out("[comm] " + operation_name(header) + ": not done yet");
  }
  return status_;
}

std::unique_ptr<Operation> OperationPool::take() {
  std::unique_ptr<Operation> operation;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      operation = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (operation == nullptr) operation = std::make_unique<Operation>();
  operation->home = shared_from_this();
  return operation;
}

void OperationPool::give_back(std::unique_ptr<Operation> operation) {
  const std::shared_ptr<OperationPool> home = std::move(operation->home);
  if (home == nullptr) return;
  operation->group_.reset();
  const std::lock_guard lock(home->mutex_);
  if (operation->scratch_.bytes() > kOwnScratchMax) {
    home->keep(std::exchange(operation->scratch_, Scratch()));
  }
  home->free_.push_back(std::move(operation));
}

Scratch OperationPool::take_scratch(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = scratch_.lower_bound(bytes);
    if (found != scratch_.end()) {
      Scratch scratch = std::move(found->second);
      kept_bytes_ -= scratch.bytes();
      scratch_.erase(found);
      return scratch;
    }
  }
  return Scratch(bytes);
}

// With mutex_ held.
void OperationPool::keep(Scratch scratch) {
  const size_t bytes = scratch.bytes();
  if (bytes > kKeptScratchMax) return;
  while (kept_bytes_ + bytes > kKeptScratchMax) {
    kept_bytes_ -= scratch_.begin()->first;
    scratch_.erase(scratch_.begin());
  }
  kept_bytes_ += bytes;
  scratch_.emplace(bytes, std::move(scratch));
}

Work::Work() = default;
Work::Work(std::unique_ptr<Operation> first) : first_(std::move(first)) {}
Work::Work(Work&& other) noexcept = default;

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    end();
    first_ = std::move(other.first_);
  }
  return *this;
}

Work::~Work() {
  end();
}

void Work::end() {
  static_cast<void>(wait());
  while (first_ != nullptr) {
    std::unique_ptr<Operation> operation = std::move(first_);
    first_ = std::move(operation->next);
    OperationPool::give_back(std::move(operation));
  }
}

bool Work::test() const {
  for (const Operation* at = first_.get(); at != nullptr; at = at->next.get()) {
    if (!at->done()) return false;
  }
  return true;
}

Status Work::wait(Duration timeout) {
  const bool bounded = timeout != Duration::max();
  const SystemClock clock;
  const TimePoint begin = bounded ? clock.now() : TimePoint{};
  Status first;
  for (const Operation* at = first_.get(); at != nullptr; at = at->next.get()) {
    const bool was_done = at->done();
    const Duration rest = bounded && !was_done ? timeout - (clock.now() - begin) : Duration::max();
    Status status = at->wait(rest);
    if (!status.ok() && !was_done && !at->done()) return status;
    // It has ended after its time was up.
    if (!status.ok() && !was_done) status = at->wait(Duration::max());
    if (!status.ok() && first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace lockstep::comm
