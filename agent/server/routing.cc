#include "agent/server/routing.h"

#include <algorithm>
#include <utility>

namespace lockstep::server {
namespace {

std::vector<uint32_t> sorted_once(std::vector<uint32_t> ranks) {
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  return ranks;
}

}  // namespace

Routing::Routing(std::shared_ptr<const View> view)
    : view_(std::move(view)), fence_(fence_of(*view_)) {
  for (const Holders& slot : view_->slots) servers_.push_back(slot.chain.front());
  for (const DenseRange& range : view_->ranges) servers_.push_back(range.chain.front());
  servers_ = sorted_once(std::move(servers_));
}

std::pair<size_t, size_t> Routing::ranges_of(uint32_t tensor) const {
  const auto found = std::ranges::equal_range(view_->ranges, tensor, {}, &DenseRange::tensor);
  const auto first = static_cast<size_t>(found.begin() - view_->ranges.begin());
  return {first, first + found.size()};
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
