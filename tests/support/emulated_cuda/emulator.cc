#include "tests/support/emulated_cuda/emulator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "common/base/random.h"
#include "tests/support/emulated_cuda/fiber.h"

thread_local constinit lockstep::emulated_cuda::Index3 threadIdx;
thread_local constinit lockstep::emulated_cuda::Index3 blockIdx;
thread_local constinit lockstep::emulated_cuda::Index3 blockDim;
thread_local constinit lockstep::emulated_cuda::Index3 gridDim;

namespace lockstep::emulated_cuda {

namespace {

enum class State { kReady, kAtBarrier, kInExchange, kDone };

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Thread {
  Fiber fiber;
  unsigned index = 0;
  State state = State::kDone;
  std::source_location at;         // of the barrier where it waits
  WarpRequest* request = nullptr;  // of the exchange where it waits
  std::vector<Copy> begun;
  std::deque<std::vector<Copy>> committed;
};

std::string place_of(std::source_location at) {
  const std::string_view file = at.file_name();
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(at.line());
}

bool same_place(std::source_location a, std::source_location b) {
  if (a.line() != b.line()) return false;
  return a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string text_of(const Index3& i) {
  return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
}

// All ones is NaN as float, double and bf16, and far out of range as an index.
void poison(std::vector<std::byte>& bytes) {
  std::ranges::fill(bytes, std::byte{0xFF});
}

// The fault of a thread. Trivially destructible, because a dropped thread runs no destructors.
struct Fault {
  const char* words;
  std::source_location at;
  std::source_location other = {};  // for an exchange; line 0 if there is none
};

// The machine of one host thread; reuses its fibers for all launches.
class Machine {
 public:
  Status run(const kernels::LaunchShape& shape, const std::function<void()>& body, uint64_t seed);

  void wait_for_block(std::source_location at);
  void exchange(WarpRequest& request);
  [[noreturn]] void fault(const Fault& fault);
  Thread& current() { return *current_; }
  std::byte* shared() { return shared_.data(); }

 private:
  static void thread_main(void* machine);
  void start_threads(size_t count);
  Status run_block();
  void draw_order();
  void choose_ready();
  void run_ready();
  Status release_barrier();
  Error stuck(const std::string& words) const;
  Error wrong(const Fault& fault) const;
  Thread& lane(const Thread& thread, int number) {
    return *threads_[thread.index / kernels::kWarpThreads * kernels::kWarpThreads +
                     static_cast<unsigned>(number)];
  }

  Random random_{0};
  const kernels::LaunchShape* shape_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;
  size_t count_ = 0;  // threads in this launch's block
  // Until the next barrier, either all warps advance together, or each runs as far as it can before
  // the next one in the ranking. The latter shows errors of a warp that runs ahead.
  bool together_ = true;
  std::array<uint32_t, kernels::kBlockThreadsMax / kernels::kWarpThreads> ranks_ = {};
  std::vector<Thread*> ready_;
  Thread* current_ = nullptr;
  std::vector<std::byte> shared_;
  std::optional<Fault> fault_;
};

thread_local Machine machine;
thread_local constinit uint64_t accesses = 0;

void Machine::thread_main(void*) {
  (*machine.body_)();
  machine.current_->state = State::kDone;
}

void Machine::start_threads(size_t count) {
  count_ = count;
  while (threads_.size() < count) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->index = static_cast<unsigned>(threads_.size() - 1);
  }
  for (size_t i = 0; i < count; ++i) {
    Thread& thread = *threads_[i];
    thread.state = State::kReady;
    thread.begun.clear();
    thread.committed.clear();
    thread.fiber.start(thread_main, nullptr);
  }
}

void Machine::draw_order() {
  together_ = random_.below(2) == 0;
  for (uint32_t& rank : ranks_) rank = random_.next_u32();
}

// Selects the threads that run next, among those that are ready.
void Machine::choose_ready() {
  ready_.clear();
  uint32_t first = ~uint32_t{0};
  for (size_t i = 0; i < count_; ++i) {
    Thread* thread = threads_[i].get();
    if (thread->state != State::kReady) continue;
    const uint32_t rank = together_ ? 0 : ranks_[thread->index / kernels::kWarpThreads];
    if (rank < first) ready_.clear();
    first = std::min(first, rank);
    if (rank == first) ready_.push_back(thread);
  }
}

// Runs each of them, in a new random order.
void Machine::run_ready() {
  for (size_t i = ready_.size(); i > 1; --i) {
    std::swap(ready_[i - 1], ready_[random_.next_u32() % i]);
  }
  for (Thread* thread : ready_) {
    current_ = thread;
    threadIdx = {.x = thread->index, .y = 0, .z = 0};
    thread->fiber.enter();
    if (fault_) return;
  }
}

Error Machine::stuck(const std::string& words) const {
  return internal("[emulated cuda] " + std::string(shape_->name) + ", block " + text_of(blockIdx) +
                  ": " + words);
}

// Called when no thread can continue and not all are done: all must then wait at the same barrier.
Status Machine::release_barrier() {
  const Thread* waiting = nullptr;
  for (size_t i = 0; i < count_; ++i) {
    const Thread& thread = *threads_[i];
    const std::string who = "thread " + std::to_string(i);
    if (thread.state == State::kInExchange) {
      return stuck(who + " waits for other lanes at " + place_of(thread.request->at) +
                   ", which never arrive");
    }
    if (thread.state != State::kAtBarrier) continue;
    if (waiting && !same_place(waiting->at, thread.at)) {
      return stuck("thread " + std::to_string(waiting->index) + " waits at the barrier of " +
                   place_of(waiting->at) + ", but " + who + " at the barrier of " +
                   place_of(thread.at));
    }
    waiting = &thread;
  }
  for (size_t i = 0; i < count_; ++i) {
    if (threads_[i]->state == State::kDone) {
      return stuck("thread " + std::to_string(waiting->index) + " waits at the barrier of " +
                   place_of(waiting->at) + ", but thread " + std::to_string(i) + " has ended");
    }
    threads_[i]->state = State::kReady;
  }
  return {};
}

Status Machine::run_block() {
  poison(shared_);
  start_threads(static_cast<size_t>(shape_->threads));
  draw_order();
  while (true) {
    choose_ready();
    if (!ready_.empty()) {
      run_ready();
      if (fault_) return wrong(*fault_);
      continue;
    }
    const auto done = [](const auto& thread) { return thread->state == State::kDone; };
    if (std::all_of(threads_.begin(), threads_.begin() + static_cast<ptrdiff_t>(count_), done)) {
      return {};
    }
    TRY(release_barrier());
    draw_order();
  }
}

Status Machine::run(const kernels::LaunchShape& shape, const std::function<void()>& body,
                    uint64_t seed) {
  TRY(kernels::check_launchable(shape));
  random_ = Random(seed);
  shape_ = &shape;
  body_ = &body;
  fault_.reset();
  std::vector<std::byte>(shape.shared_bytes).swap(shared_);  // exact size, for the address
                                                             // sanitizer
  const kernels::Extent& grid = shape.blocks;
  gridDim = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
             static_cast<unsigned>(grid.z)};
  blockDim = {.x = static_cast<unsigned>(shape.threads), .y = 1, .z = 1};
  // Visits every block once, with a stride that is coprime to their number.
  const uint64_t blocks = static_cast<uint64_t>(grid.x * grid.y * grid.z);
  uint64_t stride = blocks > 1 ? 1 + random_.below(blocks - 1) : 1;
  while (std::gcd(stride, blocks) != 1) ++stride;
  uint64_t block = random_.below(std::max<uint64_t>(1, blocks));
  for (uint64_t i = 0; i < blocks; ++i, block = (block + stride) % blocks) {
    blockIdx = {static_cast<unsigned>(block % gridDim.x),
                static_cast<unsigned>(block / gridDim.x % gridDim.y),
                static_cast<unsigned>(block / gridDim.x / gridDim.y)};
    TRY(run_block());
  }
  return {};
}

void Machine::wait_for_block(std::source_location at) {
  current_->state = State::kAtBarrier;
  current_->at = at;
  current_->fiber.leave();
}

// The last lane to arrive combines; it continues immediately, the others when it is their turn.
void Machine::exchange(WarpRequest& request) {
  Thread& self = *current_;
  if ((request.mask >> (self.index % kernels::kWarpThreads) & 1u) == 0) {
    fault({"a lane missing from its own mask", request.at});
  }
  self.request = &request;
  self.state = State::kInExchange;
  WarpRequest* lanes[kernels::kWarpThreads] = {};
  for (int i = 0; i < kernels::kWarpThreads; ++i) {
    if ((request.mask >> i & 1u) == 0) continue;
    Thread& other = lane(self, i);
    const bool here = other.state == State::kInExchange;
    if (other.state == State::kDone) fault({"an exchange with a lane that has ended", request.at});
    if (here && !same_place(other.request->at, request.at)) {
      fault({"an exchange with a lane in another exchange", request.at, other.request->at});
    }
    if (!here) {
      self.fiber.leave();
      return;
    }
    if (other.request->mask != request.mask) fault({"lanes with different masks", request.at});
    lanes[i] = other.request;
  }
  request.combine(lanes);
  for (int i = 0; i < kernels::kWarpThreads; ++i) {
    if (lanes[i] != nullptr) lane(self, i).state = State::kReady;
  }
}

void Machine::fault(const Fault& fault) {
  fault_ = fault;
  while (true) current_->fiber.leave();
}

Error Machine::wrong(const Fault& fault) const {
  std::string words = "thread " + std::to_string(current_->index) + " at " + place_of(fault.at) +
                      ": " + fault.words;
  if (fault.other.line() > 0) words += ", at " + place_of(fault.other);
  return stuck(words);
}

void perform(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
}

}  // namespace

Status run_kernel(const kernels::LaunchShape& shape, const std::function<void()>& thread,
                  uint64_t seed) {
  return machine.run(shape, thread, seed);
}

uint64_t wide_accesses() {
  return accesses;
}

void count_access() {
  ++accesses;
}

void wait_for_block(std::source_location at) {
  machine.wait_for_block(at);
}

void exchange_in_warp(WarpRequest& request) {
  machine.exchange(request);
}

void* shared_memory() {
  return machine.shared();
}

void fault(const char* words, std::source_location at) {
  machine.fault({words, at});
}

void begin_copy(void* to, const void* from, size_t bytes) {
  machine.current().begun.push_back({to, from, bytes});
}

void commit_copies() {
  Thread& thread = machine.current();
  thread.committed.push_back(std::move(thread.begun));
  thread.begun.clear();
}

void wait_for_copies(size_t groups_left) {
  std::deque<std::vector<Copy>>& groups = machine.current().committed;
  for (; groups.size() > groups_left; groups.pop_front()) perform(groups.front());
}

}  // namespace lockstep::emulated_cuda
