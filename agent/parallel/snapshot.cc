#include "agent/parallel/snapshot.h"

#include <algorithm>

#include "kernels/device/parallel.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kGrain = int64_t{1} << 18;  // floats that are worth a thread

}  // namespace

Snapshot::Snapshot(const StateLayout::ShardRange& range, size_t kinds)
    : range_(range), values_(kinds) {
  for (std::vector<float>& values : values_) values.resize(static_cast<size_t>(range.count()));
}

Status Snapshot::take(const HeldState& state) {
  CHECK(state.kinds.size() == values_.size());
  for (size_t kind = 0; kind < values_.size(); ++kind) {
    float* to = values_[kind].data();
    TRY(state.transfer.read(
        state.runs(kind, range_.begin, range_.count()), [&](std::span<const float> from) {
          kernels::parallel_for(std::ssize(from), kGrain, [&](kernels::Range part) {
            std::copy(from.data() + part.begin, from.data() + part.end, to + part.begin);
          });
          to += from.size();
          return Status();
        }));
    state.give_back(kind);
  }
  return {};
}

std::vector<std::span<const float>> Snapshot::kinds() const {
  return {values_.begin(), values_.end()};
}

}  // namespace lockstep::parallel
