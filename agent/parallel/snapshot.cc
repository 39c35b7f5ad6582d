#include "agent/parallel/snapshot.h"

#include <algorithm>

#include "kernels/device/parallel.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kGrain = int64_t{1} << 18;  // floats that are worth a thread

}  // namespace

Status copy_range(const HeldState& state, const StateLayout::ShardRange& range,
                  std::span<float* const> to, const CopyValues& copy) {
  CHECK(state.kinds.size() == to.size());
  for (size_t kind = 0; kind < to.size(); ++kind) {
    float* next = to[kind];
    TRY(state.transfer.read(state.runs(kind, range.begin, range.count()),
                            [&](std::span<const float> from) {
                              copy(from, next);
                              next += from.size();
                              return Status();
                            }));
    state.give_back(kind);
  }
  return {};
}

Snapshot::Snapshot(const StateLayout::ShardRange& range, size_t kinds)
    : range_(range), values_(kinds) {
  for (std::vector<float>& values : values_) values.resize(static_cast<size_t>(range.count()));
}

Status Snapshot::take(const HeldState& state) {
  std::vector<float*> to;
  for (std::vector<float>& values : values_) to.push_back(values.data());
  return copy_range(state, range_, to, [](std::span<const float> from, float* kind) {
    kernels::parallel_for(std::ssize(from), kGrain, [&](kernels::Range part) {
      std::copy(from.data() + part.begin, from.data() + part.end, kind + part.begin);
    });
  });
}

std::vector<std::span<const float>> Snapshot::kinds() const {
  return {values_.begin(), values_.end()};
}

}  // namespace lockstep::parallel
