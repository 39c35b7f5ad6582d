#include "agent/parallel/rank_groups.h"

#include <algorithm>
#include <utility>

#include "agent/comm/message_text.h"

namespace lockstep::parallel {
namespace {

constexpr Axis kAxes[] = {Axis::kPipeline, Axis::kData, Axis::kTensor};

// "data.3"
bool is_of_axis(std::string_view name, Axis axis) {
  const std::string_view prefix = axis_name(axis);
  return name.size() > prefix.size() && name.starts_with(prefix) && name[prefix.size()] == '.';
}

std::string in_group(const std::string& name) {
  return "[groups] group '" + name + "': ";
}

Result<std::vector<int>> ranks_of(const WorldGroup& group, int world_size) {
  std::vector<int> ranks;
  for (const int64_t rank : group.ranks) {
    if (rank < 0 || rank >= world_size) {
      return invalid(in_group(group.name) + "rank " + std::to_string(rank) + " is out of range (" +
                     std::to_string(world_size) + " ranks)");
    }
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

Result<RankGroups> RankGroups::create(comm::Communicator& world,
                                      std::span<const WorldGroup> groups) {
  RankGroups made;
  made.rank_ = world.rank();
  for (const WorldGroup& group : groups) {
    Entry entry;
    TRY_ASSIGN(entry.ranks, ranks_of(group, world.size()));
    if (group_rank(group, made.rank_) >= 0) {
      TRY_ASSIGN(entry.group, world.sub_group(entry.ranks));
      for (const Axis axis : kAxes) {
        // The axes' own come before the user's.
        if (is_of_axis(group.name, axis)) made.name_of_axis_.try_emplace(axis, group.name);
      }
    }
    if (!made.by_name_.try_emplace(group.name, std::move(entry)).second) {
      return invalid(in_group(group.name) + "duplicate name");
    }
  }
  return made;
}

Result<comm::Communicator*> RankGroups::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    return not_found("[groups] the world has no group '" + std::string(name) + "'");
  }
  const Entry& entry = found->second;
  if (entry.group == nullptr) {
    return invalid("[groups] rank " + std::to_string(rank_) + " is not in the group '" +
                   found->first + "' of ranks " + comm::rank_list(entry.ranks));
  }
  return entry.group.get();
}

Result<comm::Communicator*> RankGroups::of(Axis axis) const {
  const auto found = name_of_axis_.find(axis);
  if (found == name_of_axis_.end()) {
    return not_found("[groups] the world has no group for axis " + std::string(axis_name(axis)));
  }
  return find(found->second);
}

}  // namespace lockstep::parallel
