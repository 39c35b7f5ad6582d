#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"

namespace lockstep {

// One node of a round: its identity and where its processes listen.
struct WorldNode {
  int64_t index = 0;
  int64_t incarnation = 0;
  std::string host;  // the pod's address
  int64_t port = 0;  // port of local rank 0; local rank i uses port + i

  bool operator==(const WorldNode&) const = default;
};

// Ranks ordered by group rank: ranks[3] has group rank 3.
struct WorldGroup {
  std::string name;  // "tensor.2", "data.0", "pipeline.1" for the axes, else the user's name
  std::vector<int64_t> ranks;

  bool operator==(const WorldGroup&) const = default;
};

struct RankCoordinates {
  int64_t node = 0;
  int64_t local_rank = 0;
  int64_t pipeline = 0;
  int64_t data = 0;
  int64_t tensor = 0;

  bool operator==(const RankCoordinates&) const = default;
};

// The members of a round and their ranks: a pure function of the spec, the round, and the members
// with their addresses (docs/design.md, "Rounds and members"). Ranks are node-major: rank = node x
// processes per node + local rank. The mesh is pipeline x data x tensor, outer to inner.
struct WorldAssignment {
  std::string job_uid;
  int64_t round = 0;
  int64_t processes_per_node = 1;
  int64_t pipeline = 1;
  int64_t data = 1;
  int64_t tensor = 1;
  std::vector<WorldNode> nodes;    // ordered by index
  std::vector<WorldGroup> groups;  // those of each axis, then the user's

  int64_t world_size() const { return static_cast<int64_t>(nodes.size()) * processes_per_node; }

  bool operator==(const WorldAssignment&) const = default;
};

struct WorldInput {
  std::string job_uid;
  int64_t round = 0;
  std::vector<WorldNode> nodes;  // in any order; indices 0..n-1, each once
};

// kInvalid if the mesh does not fit the world, a node is missing or duplicated, a user's group
// names a rank that does not exist, or a port is out of range.
Result<WorldAssignment> make_world(const TrainingJobSpec& spec, const WorldInput& input);

// rank in [0, world_size).
RankCoordinates coordinates(const WorldAssignment& world, int64_t rank);
// Returns the rank's position in the group, or -1 if it is not a member.
int64_t group_rank(const WorldGroup& group, int64_t rank);

// Returns the groups of the axes, as make_world() names them: tensor, data, pipeline.
std::vector<WorldGroup> mesh_groups(const Mesh& mesh);

// Parses "0,7", "0-3", "0::2", "1:7:2" (start:stop:step as in Python, stop exclusive) and
// comma-separated lists of these. Keeps the order. kInvalid for duplicates and for ranks outside
// [0, world_size). Bounded by world_size.
Result<std::vector<int64_t>> parse_ranks(std::string_view text, int64_t world_size);

// The JSON contains only the user's groups, since the mesh determines those of the axes. Reading
// rebuilds the latter and refuses worlds that make_world() would not have made.
Json to_json(const WorldAssignment& world);
Result<WorldAssignment> world_from_json(const Json& document);

// Returns the first 16 hex digits of the SHA-256 of the canonical JSON: the fencing token, together
// with the round.
std::string world_hash(const WorldAssignment& world);

}  // namespace lockstep
