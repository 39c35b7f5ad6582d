#include "agent/comm/core.h"

#include <algorithm>
#include <numeric>

#include "agent/comm/collectives.h"

namespace lockstep {

void Operation::finish(Status status) {
  {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    done_ = true;
  }
  finished_.notify_all();
}

bool Operation::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

Status Operation::wait(Duration timeout) const {
  std::unique_lock lock(mutex_);
  if (timeout == Duration::max()) {
    finished_.wait(lock, [this] { return done_; });
  } else if (!finished_.wait_for(lock, timeout, [this] { return done_; })) {
    return timed_out("[comm] " + collective_name(header) + ": not done yet");
  }
  return status_;
}

Core::Core(Options options) : options_(std::move(options)), world_(std::make_shared<Group>()) {
  world_->ranks.resize(options_.links.size());
  std::iota(world_->ranks.begin(), world_->ranks.end(), 0);
  world_->rank = options_.rank;
}

Result<std::shared_ptr<Core>> Core::create(Options options) {
  std::shared_ptr<Core> core(new Core(std::move(options)));
  TRY_ASSIGN(core->waiter_, Waiter::create(core->options_.region, core->options_.local_rank));
  if (core->world_size() == 1) return core;
  // Often enough to know, within the limit, who stands still; seldom enough to cost nothing.
  const Duration heartbeat = std::clamp<Duration>(
      core->options_.operation_limit / 8, std::chrono::milliseconds(20), std::chrono::seconds(1));
  Core* raw = core.get();
  TRY_ASSIGN(core->control_,
             Control::create({.rank = core->options_.rank,
                              .peers = std::move(core->options_.controls),
                              .heartbeat = heartbeat,
                              .on_fault = [raw](const Fault& fault) { raw->fail(fault); },
                              .on_wake = [raw] { raw->waiter_->wake(); },
                              .entered = [raw] { return raw->world_->entered.load(); }}));
  core->control_->start();
  return core;
}

Core::~Core() {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    idle = queue_.empty() && !busy_;
    stopping_ = true;
  }
  if (!idle) fail({.reason = "rank " + std::to_string(rank()) + " left", .suspect = rank()});
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  // After a fault its announcement, which may still be on the control thread, has to be what the
  // others hear first: it names the culprit, and closing the connections comes behind it.
  if (control_ != nullptr && !fault_.raised()) control_->say_bye();
}

void Core::fail(const Fault& fault) {
  if (!fault_.raise(fault)) return;
  if (control_ != nullptr) control_->announce(fault);
  waiter_->wake();
}

Error Core::error_of(const Operation& operation) const {
  const Fault fault = fault_.get();
  return {fault.code, "[comm] " + collective_name(operation.header) + ": " + fault.reason};
}

void Core::admit(Operation& operation) {
  if (operation.header.kind != CollectiveKind::kForm) {
    operation.header.sequence = ++operation.group->issued;
  }
  operation.header.round = options_.round;
  operation.header.group = operation.group->id;
}

void Core::start(std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(mutex_);
    admit(*operation);
    queue_.push_back(std::move(operation));
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

Status Core::run(std::shared_ptr<Operation> operation) {
  {
    std::unique_lock lock(mutex_);
    if (busy_ || !queue_.empty()) {
      lock.unlock();
      start(operation);
      return operation->wait(Duration::max());
    }
    admit(*operation);
    busy_ = true;
  }
  Status status = execute(*operation);
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    more = !queue_.empty();
  }
  if (more) changed_.notify_all();
  return status;
}

void Core::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock,
                  [this] { return (stopping_ && queue_.empty()) || (!busy_ && !queue_.empty()); });
    if (queue_.empty()) return;
    const std::shared_ptr<Operation> operation = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    operation->finish(execute(*operation));
    lock.lock();
    busy_ = false;
  }
}

Status Core::execute(Operation& operation) {
  if (fault_.raised()) return error_of(operation);
  Group& group = *operation.group;
  group.entered.store(operation.header.sequence);
  TRY(run_collective(*this, operation));
  group.completed.store(operation.header.sequence);
  return {};
}

}  // namespace lockstep
