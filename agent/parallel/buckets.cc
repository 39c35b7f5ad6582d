#include "agent/parallel/buckets.h"

namespace lockstep::parallel {

std::vector<Bucket> make_buckets(const ParameterArena& arena, int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  int64_t end = arena.count;
  int64_t last_id = -1;
  for (auto entry = arena.entries.rbegin(); entry != arena.entries.rend(); ++entry) {
    if (last_id < 0) last_id = entry->id;
    const int64_t count = end - entry->offset;
    const bool full = count * static_cast<int64_t>(sizeof(float)) >= bucket_bytes;
    if (!full && entry + 1 != arena.entries.rend()) continue;
    buckets.push_back({entry->id, last_id, entry->offset, count});
    end = entry->offset;
    last_id = -1;
  }
  return buckets;
}

}  // namespace lockstep::parallel
