#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/server/parameter_servers.h"
#include "common/base/clock.h"

namespace lockstep::bench {

enum class Slowness {
  kNone,
  kRandom,  // each worker is slow in a random tenth of its steps
  kOne,     // the last worker is slow in all steps
};
inline constexpr int kSlowFactor = 3;
inline constexpr size_t kTracedSteps = 1 << 16;

// The steps of a worker, in memory that it shares with its parent. It alone writes.
struct WorkerTrace {
  std::atomic<uint64_t> steps;
  std::atomic<uint64_t> late;   // pushes that counted for nothing
  std::atomic<uint64_t> ahead;  // most clocks that a pull was ahead of the slowest worker
  std::atomic<int64_t> ends[kTracedSteps];  // nanoseconds of the monotonic clock, by step
};

// Workers in processes of their own, until destroyed. A step pulls a tensor, computes, and pushes
// its gradient. Computing is a sleep, as a GPU's work is for its host, so that more workers than
// CPUs can be measured.
class SlowWorkers {
 public:
  struct Options {
    Duration compute{};  // of a step that is not slow
    Slowness slowness = Slowness::kNone;
    uint64_t seed = 1;
  };
  SlowWorkers(const ParameterServers& servers, uint32_t workers, Options options);
  ~SlowWorkers();
  SlowWorkers(const SlowWorkers&) = delete;
  SlowWorkers& operator=(const SlowWorkers&) = delete;

  // Blocks until all of them are ready, then lets them begin.
  void start();
  const WorkerTrace& trace(uint32_t worker) const { return traces_[worker]; }

 private:
  [[noreturn]] void work(const ParameterServers& servers, uint32_t worker);
  bool is_slow(uint32_t worker, uint64_t step) const;

  Options options_;
  uint32_t workers_;
  size_t bytes_ = 0;  // of the shared memory
  WorkerTrace* traces_ = nullptr;
  std::atomic<uint32_t>* ready_ = nullptr;
  std::atomic<uint32_t>* go_ = nullptr;
  std::vector<pid_t> pids_;
};

}  // namespace lockstep::bench
