#include "agent/comm/loan_benchmark.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "agent/comm/peer_memory.h"
#include "common/base/clock.h"

namespace lockstep::comm {
namespace {

constexpr size_t kTrialBytes = size_t{512} << 10;
constexpr int kTries = 5;

template <class Copy>
Duration least_of(const Copy& copy) {
  const SystemClock clock;
  Duration least = Duration::max();
  for (int i = 0; i < kTries; ++i) {
    const TimePoint begin = clock.now();
    copy();
    least = std::min<Duration>(least, clock.now() - begin);
  }
  return std::max<Duration>(least, Duration(1));
}

}  // namespace

double measure_loan_cost() {
  const auto mark = std::make_unique<const uint64_t>(kTrialBytes);
  const Result<PeerMemory> self =
      PeerMemory::find(::getpid(), {reinterpret_cast<uintptr_t>(mark.get()), *mark});
  const std::vector<std::byte> from(kTrialBytes, std::byte{1});
  std::vector<std::byte> into(kTrialBytes);
  bool reads = self.ok();
  const Duration between = least_of([&] {
    if (!reads) return;
    const auto got = self->read(reinterpret_cast<uintptr_t>(from.data()), into);
    reads = got.ok() && *got == kTrialBytes;
  });
  if (!reads) return std::numeric_limits<double>::infinity();
  const Duration within = least_of([&] { std::memcpy(into.data(), from.data(), kTrialBytes); });
  return to_seconds(between) / to_seconds(within);
}

}  // namespace lockstep::comm
