#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/comm/communicator.h"
#include "common/api/world_assignment.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"

namespace lockstep::parallel {

// This rank's communicators of its world's groups: of each axis of the mesh, and the user's own. A
// rank outside a group gets an error by the group's name where it asks for it, before anything
// waits for anybody. They may outlive the communicator of the world.
class RankGroups {
 public:
  // `groups`: those of the WorldAssignment, in its order, the same on every rank of the world,
  // whose every rank makes this call. Makes a communicator of each that has this rank; sends
  // nothing. kInvalid for a group that names a rank the world does not have, or one twice.
  static Result<RankGroups> create(comm::Communicator& world, std::span<const WorldGroup> groups);

  // `name` as in the assignment: "data.0", "even". kInvalid: `[groups] rank 3 is not in the group
  // 'even' of ranks 0, 2, 4, 6`; kNotFound: there is none of that name. Owned by this object.
  Result<comm::Communicator*> find(std::string_view name) const;
  // The group of that axis in which this rank is; kNotFound where the assignment has none.
  Result<comm::Communicator*> of(Axis axis) const;

 private:
  struct Entry {
    std::vector<int> ranks;                     // of the world
    std::unique_ptr<comm::Communicator> group;  // null: this rank is outside
  };

  int rank_ = 0;  // of the world
  std::map<std::string, Entry, std::less<>> by_name_;
  std::map<Axis, std::string> name_of_axis_;
};

}  // namespace lockstep::parallel
