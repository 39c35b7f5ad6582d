#include "common/api/world_assignment.h"

#include <algorithm>
#include <map>

#include "common/api/codec.h"
#include "common/api/rank_list.h"
#include "common/api/training_job_fields.h"
#include "common/api/world_fields.h"
#include "common/base/check.h"
#include "common/base/sha256.h"
#include "common/layout/pipeline_schedule.h"

namespace lockstep {
namespace {

constexpr int64_t kPortMax = 65535;
constexpr int64_t kNodeIndexMax = 1'000'000;
// Limit for the ranks of all the user's groups together, so that an assignment stays within its
// size limit.
constexpr size_t kGroupRanksMax = 4 * kWorldSizeMax;
constexpr size_t kNamedGroupsMax = 256;

constexpr Axis kAxes[] = {Axis::kTensor, Axis::kData, Axis::kPipeline};

Mesh mesh_of(const WorldAssignment& world) {
  return {.pipeline = world.pipeline, .data = world.data, .tensor = world.tensor};
}

int64_t workers_of(const WorldAssignment& world) {
  return std::count_if(world.members.begin(), world.members.end(), [](const WorldMember& member) {
    return member.role == MemberRole::kWorker;
  });
}

int64_t worker_ranks(const WorldAssignment& world) {
  return workers_of(world) * world.processes_per_node;
}

// Returns how many groups mesh_groups() makes.
size_t mesh_group_count(const WorldAssignment& world) {
  return static_cast<size_t>(world.pipeline * world.data + world.pipeline * world.tensor +
                             world.data * world.tensor);
}

std::string where_of(size_t place) {
  return "nodes[" + std::to_string(place) + "]";
}

Status check_member(const WorldAssignment& world, size_t place) {
  const WorldMember& member = world.members[place];
  const int64_t port_max = kPortMax - (world.processes_per_node - 1);
  if (member.index < 0 || member.index > kNodeIndexMax) {
    return invalid(where_of(place) + ": index " + std::to_string(member.index) +
                   ", expected 0 to " + std::to_string(kNodeIndexMax));
  }
  if (member.host.empty()) return invalid(where_of(place) + ": no host, expected an address");
  if (member.port < 1 || member.port > port_max) {
    return invalid(where_of(place) + ": port " + std::to_string(member.port) + " with " +
                   std::to_string(world.processes_per_node) + " processes, expected 1 to " +
                   std::to_string(port_max));
  }
  const bool is_late = place > 0 && member.role == MemberRole::kWorker &&
                       world.members[place - 1].role != MemberRole::kWorker;
  if (is_late) {
    return invalid(where_of(place) + ": a worker after a server, expected the workers first");
  }
  return {};
}

bool is_ascending(const std::vector<WorldMember>& members) {
  return std::adjacent_find(members.begin(), members.end(),
                            [](const WorldMember& a, const WorldMember& b) {
                              return a.index >= b.index;
                            }) == members.end();
}

Status check_unique(const std::vector<WorldMember>& members) {
  if (is_ascending(members)) return {};
  std::map<int64_t, size_t> places;
  for (size_t place = 0; place < members.size(); ++place) {
    const auto [first, is_new] = places.emplace(members[place].index, place);
    if (is_new) continue;
    return invalid(where_of(place) + ": index " + std::to_string(members[place].index) +
                   " is also that of " + where_of(first->second) + ", expected each index once");
  }
  return {};
}

Status check_members(const WorldAssignment& world) {
  if (world.members.empty()) return invalid("nodes: none, expected at least 1");
  if (world.processes_per_node < 1 ||
      world.processes_per_node > kWorldSizeMax / std::ssize(world.members)) {
    return invalid("world: " + std::to_string(world.members.size()) + " nodes x " +
                   std::to_string(world.processes_per_node) + " processes, expected 1 to " +
                   std::to_string(kWorldSizeMax) + " ranks");
  }
  for (size_t place = 0; place < world.members.size(); ++place) TRY(check_member(world, place));
  if (world.members.front().role != MemberRole::kWorker) {
    return invalid("nodes: servers only, expected at least 1 worker");
  }
  return check_unique(world.members);
}

// Only a pipeline has a schedule. A command has its own, which nobody else knows.
Status check_layout(const WorldAssignment& world) {
  Problems problems;
  check_ranges(world.layout, "layout", problems);
  if (!problems.empty()) return to_error(problems);
  if (!world.layout.schedule.empty() && world.pipeline == 1) {
    return invalid("layout.schedule: found " + in_quotes(world.layout.schedule) +
                   ", expected none without a pipeline");
  }
  const bool is_interleaved =
      world.layout.schedule == pipeline_kind_name(PipelineKind::kInterleaved);
  if (is_interleaved == (world.layout.virtualStages > 1)) return {};
  return invalid("layout.virtualStages: " + std::to_string(world.layout.virtualStages) +
                 " with the schedule " + in_quotes(world.layout.schedule) + ", expected " +
                 (is_interleaved ? "2 or more" : "1"));
}

// Checks that a group's ranks are those of workers and unique; `total` sums the sizes over groups.
Status check_group(const WorldGroup& group, int64_t world_size, size_t& total) {
  std::vector<bool> seen(static_cast<size_t>(world_size));
  total += group.ranks.size();
  if (total > kGroupRanksMax) {
    return invalid("processGroups: more than " + std::to_string(kGroupRanksMax) + " ranks in all");
  }
  for (const int64_t rank : group.ranks) {
    if (rank < 0 || rank >= world_size || seen[static_cast<size_t>(rank)]) {
      return invalid("group " + in_quotes(group.name) + ": rank " + std::to_string(rank) +
                     ", expected each once, from 0 to " + std::to_string(world_size - 1));
    }
    seen[static_cast<size_t>(rank)] = true;
  }
  return {};
}

std::string quoted(const std::string& text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  return is_plain ? '"' + text + '"' : dump_json(Json(text));
}

std::string text_of(const WorldGroup& group) {
  std::string text = "{\"name\":" + quoted(group.name) + ",\"ranks\":[";
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(group.ranks[i]);
  }
  return text + "]}";
}

std::string text_of(const WorldMember& member) {
  std::string text = "{\"host\":" + quoted(member.host) +
                     ",\"incarnation\":" + std::to_string(member.incarnation) +
                     ",\"index\":" + std::to_string(member.index) +
                     ",\"port\":" + std::to_string(member.port);
  if (member.role != MemberRole::kWorker) {
    text += ",\"role\":" + quoted(std::string(member_role_name(member.role)));
  }
  return text + "}";
}

// Returns the members that are not the default.
Json document_of(const WorldLayout& layout) {
  static const Json kDefaults = write_json(WorldLayout{});
  Json document = write_json(layout);
  for (const auto& [name, value] : kDefaults.items()) {
    if (document.at(name) == value) document.erase(name);
  }
  return document;
}

std::string text_of(const WorldLayout& layout) {
  if (layout == WorldLayout{}) return "";
  return ",\"layout\":" + dump_json(document_of(layout));
}

constexpr char kEncryption[] = "encryption";
constexpr char kEncryptedText[] = "{\"encryption\":\"required\",";

// Returns the same text as dump_json(to_json(world)) without building the document, because every
// plan of a running job needs the hash.
std::string text_of(const WorldAssignment& world) {
  std::string text = world.is_encrypted ? kEncryptedText : "{";
  text += "\"groups\":[";
  const size_t first = mesh_group_count(world);
  for (size_t i = first; i < world.groups.size(); ++i) {
    text += (i == first ? "" : ",") + text_of(world.groups[i]);
  }
  text += "],\"jobUid\":" + quoted(world.job_uid) + text_of(world.layout) +
          ",\"mesh\":{\"data\":" + std::to_string(world.data) +
          ",\"pipeline\":" + std::to_string(world.pipeline) +
          ",\"tensor\":" + std::to_string(world.tensor) + "},\"nodes\":[";
  for (size_t i = 0; i < world.members.size(); ++i) {
    text += (i == 0 ? "" : ",") + text_of(world.members[i]);
  }
  return text + "],\"processesPerNode\":" + std::to_string(world.processes_per_node) +
         ",\"round\":" + std::to_string(world.round) + "}";
}

}  // namespace

std::vector<WorldGroup> mesh_groups(const Mesh& mesh) {
  std::vector<WorldGroup> groups;
  for (const Axis axis : kAxes) {
    int64_t number = 0;
    for (std::vector<int64_t>& ranks : axis_groups(mesh, axis)) {
      groups.push_back({.name = std::string(axis_name(axis)) + "." + std::to_string(number++),
                        .ranks = std::move(ranks)});
    }
  }
  return groups;
}

std::string_view member_role_name(MemberRole role) {
  return role == MemberRole::kWorker ? "worker" : "server";
}

MemberRole role_of_node(const TrainingJobSpec& spec, int64_t index) {
  return spec.parameterServers && index >= spec.nodes ? MemberRole::kServer : MemberRole::kWorker;
}

Result<WorldAssignment> make_world(const TrainingJobSpec& spec, const WorldInput& input) {
  WorldAssignment world{.job_uid = input.job_uid,
                        .round = input.round,
                        .processes_per_node = processes_per_node(spec),
                        .layout = {spec.parallelism, ""},
                        .is_encrypted = spec.security.encryption == kRequiredEncryption,
                        .members = input.members,
                        .groups = {}};
  std::sort(world.members.begin(), world.members.end(),
            [](const WorldMember& a, const WorldMember& b) {
              return a.role != b.role ? a.role < b.role : a.index < b.index;
            });
  TRY(check_members(world));
  const int64_t size = worker_ranks(world);
  TRY_ASSIGN(const Mesh mesh, make_mesh({.world_size = size,
                                         .pipeline = spec.parallelism.pipeline,
                                         .tensor = spec.parallelism.tensor}));
  world.pipeline = mesh.pipeline;
  world.data = mesh.data;
  world.tensor = mesh.tensor;
  if (world.pipeline > 1 && spec.train) {
    world.layout.schedule = spec.parallelism.pipelineSchedule;
    world.layout.virtualStages = spec.parallelism.virtualStages;
  }
  TRY(check_layout(world));
  world.groups = mesh_groups(mesh);
  size_t total = 0;
  for (const ProcessGroupSpec& group : spec.processGroups) {
    Result<std::vector<int64_t>> ranks = parse_ranks(group.ranks, size);
    if (!ranks.ok()) {
      return invalid("processGroups " + in_quotes(group.name) + ": " + ranks.error().message);
    }
    world.groups.push_back({.name = group.name, .ranks = std::move(ranks).value()});
    TRY(check_group(world.groups.back(), size, total));
  }
  return world;
}

int64_t rank_of(const WorldAssignment& world, int64_t place, int64_t local_rank) {
  CHECK(place >= 0 && place < std::ssize(world.members));
  CHECK(local_rank >= 0 && local_rank < world.processes_per_node);
  return place * world.processes_per_node + local_rank;
}

std::optional<int64_t> place_of(const WorldAssignment& world, int64_t node_index) {
  const auto found =
      std::find_if(world.members.begin(), world.members.end(),
                   [&](const WorldMember& member) { return member.index == node_index; });
  if (found == world.members.end()) return std::nullopt;
  return found - world.members.begin();
}

const WorldMember& member_of(const WorldAssignment& world, int64_t rank) {
  CHECK(rank >= 0 && rank < world.world_size());
  return world.members[static_cast<size_t>(place_of_rank(rank, world.processes_per_node))];
}

RankCoordinates coordinates(const WorldAssignment& world, int64_t rank) {
  CHECK(rank >= 0 && rank < world.world_size());
  const Mesh mesh = mesh_of(world);
  const MeshCoordinates at = rank < mesh.size()
                                 ? coordinates(mesh, rank)
                                 : MeshCoordinates{.pipeline = -1, .data = -1, .tensor = -1};
  return {.place = place_of_rank(rank, world.processes_per_node),
          .local_rank = rank % world.processes_per_node,
          .pipeline = at.pipeline,
          .data = at.data,
          .tensor = at.tensor};
}

bool has_servers(const WorldAssignment& world) {
  return !world.members.empty() && world.members.back().role != MemberRole::kWorker;
}

size_t server_count(const WorldAssignment& world) {
  const auto members = std::ranges::count(world.members, MemberRole::kServer, &WorldMember::role);
  return static_cast<size_t>(members * world.processes_per_node);
}

bool shares_nothing(const WorldLayout& layout) {
  return static_cast<const StateSharing&>(layout) == StateSharing{};
}

bool is_ordinary(const WorldAssignment& world) {
  for (size_t place = 0; place < world.members.size(); ++place) {
    if (world.members[place].index != static_cast<int64_t>(place)) return false;
  }
  return world.tensor == 1 && world.pipeline == 1 && world.layout == WorldLayout{} &&
         !has_servers(world) && !world.is_encrypted;
}

int64_t group_rank(const WorldGroup& group, int64_t rank) {
  const auto it = std::find(group.ranks.begin(), group.ranks.end(), rank);
  return it == group.ranks.end() ? -1 : it - group.ranks.begin();
}

Json world_file(const WorldAssignment& world) {
  Json document = to_json(world);
  if (world.tensor > 1 || world.pipeline > 1) document["groups"] = write_json(world.groups);
  return document;
}

Json to_json(const WorldAssignment& world) {
  // The mesh determines the groups of the axes, so only the user's are written.
  Json groups = Json::array();
  for (size_t i = mesh_group_count(world); i < world.groups.size(); ++i) {
    groups.push_back(write_json(world.groups[i]));
  }
  Json document = {
      {"jobUid", world.job_uid},
      {"round", world.round},
      {"processesPerNode", world.processes_per_node},
      {"mesh", {{"pipeline", world.pipeline}, {"data", world.data}, {"tensor", world.tensor}}},
      {"nodes", write_json(world.members)},
      {"groups", std::move(groups)}};
  for (Json& member : document["nodes"]) {
    if (member["role"] == member_role_name(MemberRole::kWorker)) member.erase("role");
  }
  if (world.layout != WorldLayout{}) document["layout"] = document_of(world.layout);
  if (world.is_encrypted) document[kEncryption] = kRequiredEncryption;
  return document;
}

Result<WorldAssignment> world_from_json(const Json& document) {
  WorldAssignment world;
  TRY_ASSIGN(world.job_uid, string_member(document, "jobUid"));
  TRY_ASSIGN(world.round, int_member(document, "round"));
  TRY_ASSIGN(world.processes_per_node, int_member(document, "processesPerNode"));
  const Json* mesh = find_member(document, "mesh");
  if (mesh == nullptr) return invalid("mesh: missing, expected an object");
  TRY_ASSIGN(world.pipeline, int_member(*mesh, "pipeline"));
  TRY_ASSIGN(world.data, int_member(*mesh, "data"));
  TRY_ASSIGN(world.tensor, int_member(*mesh, "tensor"));
  Problems problems;
  const Json* nodes = find_member(document, "nodes");
  if (nodes == nullptr) return invalid("nodes: missing, expected a list");
  read_json(*nodes, world.members, "nodes", kReadStored, problems);
  if (const Json* encryption = find_member(document, kEncryption)) {
    world.is_encrypted = *encryption == kRequiredEncryption;
    if (!world.is_encrypted) {
      return invalid("encryption: found " + dump_json(*encryption) + ", expected \"required\"");
    }
  }
  if (const Json* layout = find_member(document, "layout")) {
    read_json(*layout, world.layout, "layout", kReadStored, problems);
  }
  std::vector<WorldGroup> named;
  if (const Json* groups = find_member(document, "groups")) {
    read_json(*groups, named, "groups", kReadStored, problems);
  }
  if (named.size() > kNamedGroupsMax) {
    return invalid("groups: " + std::to_string(named.size()) + ", expected at most " +
                   std::to_string(kNamedGroupsMax));
  }
  if (!problems.empty()) return to_error(problems);
  TRY(check_members(world));
  TRY_ASSIGN(const Mesh fitting, make_mesh({.world_size = worker_ranks(world),
                                            .pipeline = world.pipeline,
                                            .tensor = world.tensor}));
  if (mesh_of(world) != fitting) {
    return invalid("mesh.data: " + std::to_string(world.data) + ", expected " +
                   std::to_string(fitting.data) + " (the rest of the world)");
  }
  TRY(check_layout(world));
  world.groups = mesh_groups(fitting);
  size_t total = 0;
  for (WorldGroup& group : named) {
    TRY(check_group(group, worker_ranks(world), total));
    world.groups.push_back(std::move(group));
  }
  return world;
}

std::string world_hash(const WorldAssignment& world) {
  return hex(sha256(text_of(world))).substr(0, 16);
}

}  // namespace lockstep
