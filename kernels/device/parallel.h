#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace lockstep {

// A part of [0, n): the `index`-th chunk of the partition.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int index = 0;
};

// The number of threads that an op called from now on uses, in the whole process; at least 1. It
// starts as 1. Set it before the ops run, not while they do. Results are the same bits for the same
// number of threads.
void set_threads(int threads);
int threads();

struct Partition {
  int64_t n = 0;
  int64_t grain = 1;  // fewer items than this are not worth a thread
  int threads = 1;
};

// How many chunks the partition has, and its index-th one: contiguous, sizes differing by at most
// one. Pure, so that who computes what never depends on timing.
int chunk_count(const Partition& partition);
Range chunk(const Partition& partition, int index);

// A reference to a callable, without allocation; it lives as long as the call.
class RangeFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RangeFunction>) RangeFunction(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Range range) {
          (*static_cast<std::remove_reference_t<F>*>(object))(range);
        }) {}
  void operator()(Range range) const { call_(object_, range); }

 private:
  void* object_;
  void (*call_)(void*, Range);
};

// Calls body(range) for every chunk of {n, grain, threads()}, each on a thread of its own, the
// first on the caller's; returns when all are done. Several threads may call at once. The body must
// not throw and must not call parallel_for. Twins: parallel_omp.cc (OpenMP, which oneDNN brings),
// parallel_std.cc (std::thread).
void parallel_for(int64_t n, int64_t grain, RangeFunction body);

}  // namespace lockstep
