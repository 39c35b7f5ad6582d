#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace lockstep::kernels {

// A part of [0, n): the `index`-th chunk of the partition.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int index = 0;
};

// Sets the number of threads, at least 1, for all later ops of the process. The default is 1. Call
// it before ops run, not while they run. The same number of threads gives bitwise identical
// results.
void set_threads(int threads);
int threads();

struct Partition {
  int64_t n = 0;
  int64_t grain = 1;  // minimum number of items that are worth a thread
  int threads = 1;
};

// Return the number of chunks and the index-th chunk. Chunks are contiguous and their sizes differ
// by at most one. Pure, so that timing never changes which thread computes what.
int chunk_count(const Partition& partition);
Range chunk(const Partition& partition, int index);

// A non-owning reference to a callable, without allocation. Valid during the call.
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

// Calls body(range) for every chunk of {n, grain, threads()}, each on its own thread, the first one
// on the caller's, and returns when all are done. Several threads may call it concurrently. The
// body must not throw or call parallel_for. Two implementations: parallel_omp.cc (OpenMP, a
// dependency of oneDNN) and parallel_std.cc (std::thread).
void parallel_for(int64_t n, int64_t grain, RangeFunction body);

}  // namespace lockstep::kernels
