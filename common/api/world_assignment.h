#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"

namespace lockstep {

enum class MemberRole : uint8_t { kWorker, kServer };

// "worker", "server".
std::string_view member_role_name(MemberRole role);
// Returns the role of a node index of the job: servers follow the workers.
MemberRole role_of_node(const TrainingJobSpec& spec, int64_t index);

// One node of a round: its identity, its role, and where its processes listen.
struct WorldMember {
  int64_t index = 0;  // node index; unique in the job, whatever the role
  int64_t incarnation = 0;
  std::string host;  // the pod's address
  int64_t port = 0;  // port of local rank 0; local rank i uses port + i
  MemberRole role = MemberRole::kWorker;

  bool operator==(const WorldMember&) const = default;
};

// How the workers share the training state, activations and a step's work.
struct WorldLayout : StateSharing {
  std::string schedule;       // of a pipeline, as pipeline_kind_name(); empty without one
  int64_t virtualStages = 1;  // Mesh::virtual_stages

  bool operator==(const WorldLayout&) const = default;
};

// Ranks ordered by group rank: ranks[3] has group rank 3.
struct WorldGroup {
  std::string name;  // "tensor.2", "data.0", "pipeline.1" for the axes, else the user's name
  std::vector<int64_t> ranks;

  bool operator==(const WorldGroup&) const = default;
};

struct RankCoordinates {
  int64_t place = 0;  // of its member in the list
  int64_t local_rank = 0;
  int64_t pipeline = 0;
  int64_t data = 0;
  int64_t tensor = 0;

  bool operator==(const RankCoordinates&) const = default;
};

// The members of a round and their ranks: a pure function of the spec, the round, and the members
// with their addresses (docs/design.md, "Rounds and members"). The list may leave out any node
// index. Ranks are node-major: rank = place in the list x processes per node + local rank. Workers
// come before servers. The mesh, pipeline x data x tensor from outer to inner, is that of the
// workers' ranks.
struct WorldAssignment {
  std::string job_uid;
  int64_t round = 0;
  int64_t processes_per_node = 1;
  int64_t pipeline = 1;
  int64_t data = 1;
  int64_t tensor = 1;
  WorldLayout layout;
  bool is_encrypted = false;  // what goes between members
  std::vector<WorldMember> members;
  std::vector<WorldGroup> groups;  // those of each axis, then the user's

  int64_t world_size() const { return std::ssize(members) * processes_per_node; }

  bool operator==(const WorldAssignment&) const = default;
};

struct WorldInput {
  std::string job_uid;
  int64_t round = 0;
  std::vector<WorldMember> members;  // in any order
};

// Lists the workers and then the servers, each by index. kInvalid if the mesh does not fit the
// workers, there are none, an index is duplicated, a user's group names a rank that no worker has,
// or a port is out of range.
Result<WorldAssignment> make_world(const TrainingJobSpec& spec, const WorldInput& input);

// The mapping of ranks. A member's place is its position in the list of its round.
constexpr int64_t place_of_rank(int64_t rank, int64_t processes_per_node) {
  return rank / processes_per_node;
}
int64_t rank_of(const WorldAssignment& world, int64_t place, int64_t local_rank);
// nullopt if the round leaves the node index out.
std::optional<int64_t> place_of(const WorldAssignment& world, int64_t node_index);
// rank in [0, world_size).
const WorldMember& member_of(const WorldAssignment& world, int64_t rank);
// rank in [0, world_size). For a rank of a server, the mesh's coordinates are -1.
RankCoordinates coordinates(const WorldAssignment& world, int64_t rank);

bool has_servers(const WorldAssignment& world);
// Returns the number of ranks that are servers.
size_t server_count(const WorldAssignment& world);
// Returns whether each worker holds everything of its part of the mesh, and gradients are
// all-reduced in fp32.
bool shares_nothing(const WorldLayout& layout);
// Returns whether the members are workers with the indices 0..n-1 in this order, each worker holds
// everything, and nothing is encrypted. All agents know such worlds; others need what
// protocol_needed() says.
bool is_ordinary(const WorldAssignment& world);
// Returns the rank's position in the group, or -1 if it is not a member.
int64_t group_rank(const WorldGroup& group, int64_t rank);

// Returns the groups of the axes, as make_world() names them: tensor, data, pipeline.
std::vector<WorldGroup> mesh_groups(const Mesh& mesh);

// The JSON contains only the user's groups, since the mesh determines those of the axes, and roles,
// encryption and members of the layout only where they are not the default, so that the hash of a
// world does not depend on what later versions add. Reading rebuilds the groups and refuses worlds
// that make_world() would not have made, but takes members of a role in any order.
Json to_json(const WorldAssignment& world);
// Returns what LOCKSTEP_WORLD_FILE has for a command: the same, but with the groups of the axes if
// the mesh has more than the data axis.
Json world_file(const WorldAssignment& world);
Result<WorldAssignment> world_from_json(const Json& document);

// Returns the first 16 hex digits of the SHA-256 of the canonical JSON: the fencing token, together
// with the round.
std::string world_hash(const WorldAssignment& world);

}  // namespace lockstep
