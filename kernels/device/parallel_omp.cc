#include "kernels/device/parallel.h"

namespace lockstep::kernels {

void parallel_for(int64_t n, int64_t grain, RangeFunction body) {
  const Partition partition{.n = n, .grain = grain, .threads = threads()};
  const int chunks = chunk_count(partition);
  if (chunks == 0) return;
  if (chunks == 1) return body(chunk(partition, 0));
    // OpenMP may use fewer threads than requested; the chunks stay the same.
#pragma omp parallel for num_threads(chunks) schedule(static, 1)
  for (int i = 0; i < chunks; ++i) body(chunk(partition, i));
}

}  // namespace lockstep::kernels
