#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/device/parallel.h"

namespace lockstep::kernels {

namespace {

// The helper threads of one calling thread. As with OpenMP, they live until that thread exits.
class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    started_.notify_all();
  }

  void run(const Partition& partition, RangeFunction body) {
    const int chunks = chunk_count(partition);
    while (static_cast<int>(helpers_.size()) < chunks - 1) {
      const int index = static_cast<int>(helpers_.size()) + 1;
      helpers_.emplace_back([this, index, seen = generation_] { help(index, seen); });
    }
    {
      const std::lock_guard lock(mutex_);
      partition_ = partition;
      body_ = &body;
      unfinished_ = chunks - 1;
      ++generation_;
    }
    started_.notify_all();
    body(chunk(partition, 0));
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return unfinished_ == 0; });
  }

 private:
  void help(int index, int64_t seen) {
    std::unique_lock lock(mutex_);
    while (true) {
      started_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      if (index >= chunk_count(partition_)) continue;
      const Range range = chunk(partition_, index);
      const RangeFunction body = *body_;
      lock.unlock();
      body(range);
      lock.lock();
      if (--unfinished_ == 0) finished_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable started_;
  std::condition_variable finished_;
  Partition partition_;
  const RangeFunction* body_ = nullptr;
  int unfinished_ = 0;
  int64_t generation_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> helpers_;  // last member: threads must end before the members they use
};

}  // namespace

void parallel_for(int64_t n, int64_t grain, RangeFunction body) {
  const Partition partition{.n = n, .grain = grain, .threads = threads()};
  const int chunks = chunk_count(partition);
  if (chunks == 0) return;
  if (chunks == 1) return body(chunk(partition, 0));
  static thread_local Team team;
  team.run(partition, body);
}

}  // namespace lockstep::kernels
