#include "agent/server/routing.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace lockstep::server {
namespace {

std::vector<uint32_t> sorted_once(std::vector<uint32_t> ranks) {
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

Routing::Routing(std::shared_ptr<const View> view)
    : view_(std::move(view)), fence_(fence_of(*view_)) {
  for (const Holders& slot : view_->slots) servers_.push_back(slot.chain.front());
  for (const DenseRange& range : view_->ranges) servers_.push_back(range.chain.front());
  servers_ = sorted_once(std::move(servers_));
  if (!view_->arcs.empty()) index_arcs();
}

void Routing::index_arcs() {
  const std::vector<Arc>& arcs = view_->arcs;
  const size_t parts = std::bit_ceil(2 * arcs.size());
  part_shift_ = 64 - std::countr_zero(parts);
  arcs_before_.assign(parts + 1, 0);
  for (const Arc& arc : arcs) ++arcs_before_[(arc.first >> part_shift_) + 1];
  std::partial_sum(arcs_before_.begin(), arcs_before_.end(), arcs_before_.begin());
}

size_t Routing::arc_of(uint64_t position) const {
  const std::vector<Arc>& arcs = view_->arcs;
  const auto part = static_cast<size_t>(position >> part_shift_);
  const std::span<const Arc> in_part(arcs.begin() + arcs_before_[part],
                                     arcs.begin() + arcs_before_[part + 1]);
  const auto after = std::ranges::upper_bound(in_part, position, {}, &Arc::first);
  const size_t index = arcs_before_[part] + static_cast<size_t>(after - in_part.begin());
  return index == 0 ? arcs.size() - 1 : index - 1;
}

std::pair<size_t, size_t> Routing::ranges_of(uint32_t tensor) const {
  const std::vector<DenseRange>& ranges = view_->ranges;
  const auto first = std::ranges::lower_bound(ranges, tensor, {}, &DenseRange::tensor);
  const auto end = std::ranges::upper_bound(ranges, tensor, {}, &DenseRange::tensor);
  return {static_cast<size_t>(first - ranges.begin()), static_cast<size_t>(end - ranges.begin())};
}

std::vector<RoutedKeys> Routing::split(std::span<const uint64_t> keys) const {
  std::vector<RoutedKeys> lists(view_->slots.size());
  for (uint32_t i = 0; i < lists.size(); ++i) lists[i].slot = i;
  for (uint32_t place = 0; place < keys.size(); ++place) {
    RoutedKeys& list = lists[slot_of(keys[place])];
    list.keys.push_back(keys[place]);
    list.places.push_back(place);
  }
  return lists;
}

}  // namespace lockstep::server
