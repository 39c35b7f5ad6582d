#include "agent/parallel/exchange_memory.h"

#include <algorithm>

#include "agent/parallel/buckets.h"

namespace lockstep::parallel {
namespace {

uint64_t state_bytes(const ParameterArena& arena, const optim::OptimizerOptions& optimizer) {
  return optim::state_kinds(optimizer).size() * float_bytes(arena.count);
}

// Rank 0 receives one bucket of one rank at a time. Where operations are not stream-ordered, the
// communicator adds what arrives without such a place.
uint64_t first_rank_staging_bytes(const ExchangeShape& shape) {
  if (!shape.is_stream_ordered || shape.rank > 0 || shape.ranks == 1) return 0;
  int64_t largest = 0;
  for (const Bucket& bucket : make_buckets(shape.arena, shape.bucket_bytes)) {
    largest = std::max(largest, bucket.count);
  }
  return float_bytes(largest);
}

}  // namespace

StateHolders state_holders(Exchange exchange) {
  switch (exchange) {
    case Exchange::kAllReduce:
      return StateHolders::kEveryRank;
    case Exchange::kFirstRank:
      return StateHolders::kFirstRank;
    case Exchange::kHost:
    case Exchange::kServers:
      return StateHolders::kShared;
  }
  return StateHolders::kEveryRank;
}

ExchangeMemory exchange_memory(const ExchangeShape& shape) {
  const uint64_t states = state_bytes(shape.arena, shape.optimizer);
  switch (shape.exchange) {
    case Exchange::kAllReduce:
      return {.state_bytes = states};
    case Exchange::kFirstRank:
      return {.state_bytes = shape.rank == 0 ? states : 0,
              .staging_bytes = first_rank_staging_bytes(shape)};
    case Exchange::kHost:
      return {.shared_bytes = host_segment_bytes(shape.arena, shape.optimizer, shape.ranks)};
    case Exchange::kServers:
      return {};
  }
  return {};
}

uint64_t host_segment_bytes(const ParameterArena& arena, const optim::OptimizerOptions& optimizer,
                            int ranks) {
  return static_cast<uint64_t>(1 + ranks) * float_bytes(arena.count) +
         state_bytes(arena, optimizer);
}

}  // namespace lockstep::parallel
