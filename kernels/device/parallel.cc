#include "kernels/device/parallel.h"

#include <algorithm>
#include <atomic>

#include "common/base/check.h"

namespace lockstep::kernels {

namespace {

std::atomic<int> thread_count = 1;

}  // namespace

void set_threads(int threads) {
  CHECK(threads >= 1);
  thread_count.store(threads, std::memory_order_relaxed);
}

int threads() {
  return thread_count.load(std::memory_order_relaxed);
}

int chunk_count(const Partition& partition) {
  if (partition.n <= 0) return 0;
  const int64_t grain = std::max<int64_t>(partition.grain, 1);
  const int64_t wanted = (partition.n + grain - 1) / grain;
  return static_cast<int>(std::min<int64_t>(wanted, std::max(partition.threads, 1)));
}

Range chunk(const Partition& partition, int index) {
  const int64_t chunks = chunk_count(partition);
  const int64_t size = partition.n / chunks;
  const int64_t longer = partition.n % chunks;  // this many chunks have one more item
  const int64_t begin = index * size + std::min<int64_t>(index, longer);
  return {.begin = begin, .end = begin + size + (index < longer ? 1 : 0), .index = index};
}

}  // namespace lockstep::kernels
