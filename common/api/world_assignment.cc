#include "common/api/world_assignment.h"

#include <algorithm>
#include <charconv>

#include "common/api/codec.h"
#include "common/api/training_job_fields.h"
#include "common/api/world_fields.h"
#include "common/base/check.h"
#include "common/base/sha256.h"

namespace lockstep {
namespace {

constexpr int64_t kPortMax = 65535;
// Limit for the ranks of all the user's groups together, so that an assignment stays within its
// size limit.
constexpr size_t kGroupRanksMax = 4 * kWorldSizeMax;
constexpr size_t kNamedGroupsMax = 256;

constexpr Axis kAxes[] = {Axis::kTensor, Axis::kData, Axis::kPipeline};

Mesh mesh_of(const WorldAssignment& world) {
  return {.pipeline = world.pipeline, .data = world.data, .tensor = world.tensor};
}

// Returns how many groups mesh_groups() makes.
size_t mesh_group_count(const WorldAssignment& world) {
  return static_cast<size_t>(world.pipeline * world.data + world.pipeline * world.tensor +
                             world.data * world.tensor);
}

Status check_nodes(const WorldAssignment& world) {
  if (world.nodes.empty()) return invalid("nodes: none, expected at least 1");
  if (world.processes_per_node < 1 ||
      world.processes_per_node > kWorldSizeMax / static_cast<int64_t>(world.nodes.size())) {
    return invalid("world: " + std::to_string(world.nodes.size()) + " nodes x " +
                   std::to_string(world.processes_per_node) + " processes, expected 1 to " +
                   std::to_string(kWorldSizeMax) + " ranks");
  }
  for (size_t i = 0; i < world.nodes.size(); ++i) {
    const WorldNode& node = world.nodes[i];
    const std::string where = "nodes[" + std::to_string(i) + "]";
    if (node.index != static_cast<int64_t>(i)) {
      return invalid(where + ": index " + std::to_string(node.index) + ", expected " +
                     std::to_string(i) + " (each index once)");
    }
    if (node.host.empty()) return invalid(where + ": no host, expected an address");
    if (node.port < 1 || node.port > kPortMax - (world.processes_per_node - 1)) {
      return invalid(where + ": port " + std::to_string(node.port) + " with " +
                     std::to_string(world.processes_per_node) + " processes, expected 1 to " +
                     std::to_string(kPortMax - (world.processes_per_node - 1)));
    }
  }
  return {};
}

// Checks that a group's ranks are in the world and unique; `total` sums the sizes over groups.
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

// Splits off the text before the next `separator` and removes both.
std::string_view take_part(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

bool read_rank(std::string_view text, int64_t& value) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return !text.empty() && text[0] != '-' && read.ec == std::errc{} && read.ptr == end;
}

struct RankRange {
  int64_t start = 0;
  int64_t stop = 0;  // exclusive
  int64_t step = 1;
};

// Parses one item of a list: "7", "0-3", "0::2", "1:7:2".
bool read_range(std::string_view item, int64_t world_size, RankRange& range) {
  range = {.start = 0, .stop = world_size, .step = 1};
  if (item.find(':') != std::string_view::npos) {
    const std::string_view start = take_part(item, ':');
    const std::string_view stop = take_part(item, ':');
    return (start.empty() || read_rank(start, range.start)) &&
           (stop.empty() || read_rank(stop, range.stop)) &&
           (item.empty() || read_rank(item, range.step)) && range.step > 0;
  }
  const bool is_span = item.find('-') != std::string_view::npos;
  if (!read_rank(take_part(item, '-'), range.start)) return false;
  int64_t last = range.start;
  if (is_span && !read_rank(item, last)) return false;
  range.stop = last < INT64_MAX ? last + 1 : last;
  return last >= range.start;
}

Status add_range(const RankRange& range, int64_t world_size, std::vector<bool>& seen,
                 std::vector<int64_t>& ranks) {
  for (int64_t rank = range.start; rank < range.stop; rank += range.step) {
    if (rank >= world_size) {
      return invalid("rank " + std::to_string(rank) + " is not in the world, expected 0 to " +
                     std::to_string(world_size - 1));
    }
    if (seen[static_cast<size_t>(rank)]) {
      return invalid("rank " + std::to_string(rank) + " is listed twice");
    }
    seen[static_cast<size_t>(rank)] = true;
    ranks.push_back(rank);
    if (range.step >= range.stop - rank) break;
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

std::string text_of(const WorldNode& node) {
  return "{\"host\":" + quoted(node.host) + ",\"incarnation\":" + std::to_string(node.incarnation) +
         ",\"index\":" + std::to_string(node.index) + ",\"port\":" + std::to_string(node.port) +
         "}";
}

// Returns the same text as dump_json(to_json(world)) without building the document, because every
// plan of a running job needs the hash.
std::string text_of(const WorldAssignment& world) {
  std::string text = "{\"groups\":[";
  const size_t first = mesh_group_count(world);
  for (size_t i = first; i < world.groups.size(); ++i) {
    text += (i == first ? "" : ",") + text_of(world.groups[i]);
  }
  text += "],\"jobUid\":" + quoted(world.job_uid) +
          ",\"mesh\":{\"data\":" + std::to_string(world.data) +
          ",\"pipeline\":" + std::to_string(world.pipeline) +
          ",\"tensor\":" + std::to_string(world.tensor) + "},\"nodes\":[";
  for (size_t i = 0; i < world.nodes.size(); ++i) {
    text += (i == 0 ? "" : ",") + text_of(world.nodes[i]);
  }
  return text + "],\"processesPerNode\":" + std::to_string(world.processes_per_node) +
         ",\"round\":" + std::to_string(world.round) + "}";
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<std::vector<int64_t>> parse_ranks(std::string_view text, int64_t world_size) {
  if (world_size < 1 || world_size > kWorldSizeMax) {
    return invalid("a world of " + std::to_string(world_size) + " ranks, expected 1 to " +
                   std::to_string(kWorldSizeMax));
  }
  std::vector<int64_t> ranks;
  std::vector<bool> seen(static_cast<size_t>(world_size));
  for (size_t at = 0;;) {
    const size_t comma = text.find(',', at);
    const std::string_view item = without_blanks(text.substr(at, comma - at));
    RankRange range;
    if (!read_range(item, world_size, range)) {
      return invalid("found " + in_quotes(item) + ", expected ranks such as 0,7 or 0-3 or 0::2");
    }
    const size_t before = ranks.size();
    TRY(add_range(range, world_size, seen, ranks));
    if (ranks.size() == before) {
      return invalid(in_quotes(item) + " matches no rank of the world, expected 0 to " +
                     std::to_string(world_size - 1));
    }
    if (comma == std::string_view::npos) return ranks;
    at = comma + 1;
  }
}

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

Result<WorldAssignment> make_world(const TrainingJobSpec& spec, const WorldInput& input) {
  WorldAssignment world{.job_uid = input.job_uid,
                        .round = input.round,
                        .processes_per_node = processes_per_node(spec),
                        .nodes = input.nodes,
                        .groups = {}};
  std::sort(world.nodes.begin(), world.nodes.end(),
            [](const WorldNode& a, const WorldNode& b) { return a.index < b.index; });
  TRY(check_nodes(world));
  const int64_t size = world.world_size();
  TRY_ASSIGN(const Mesh mesh, make_mesh({.world_size = size,
                                         .pipeline = spec.parallelism.pipeline,
                                         .tensor = spec.parallelism.tensor}));
  world.pipeline = mesh.pipeline;
  world.data = mesh.data;
  world.tensor = mesh.tensor;
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

RankCoordinates coordinates(const WorldAssignment& world, int64_t rank) {
  CHECK(rank >= 0 && rank < world.world_size());
  const MeshCoordinates at = coordinates(mesh_of(world), rank);
  return {.node = rank / world.processes_per_node,
          .local_rank = rank % world.processes_per_node,
          .pipeline = at.pipeline,
          .data = at.data,
          .tensor = at.tensor};
}

int64_t group_rank(const WorldGroup& group, int64_t rank) {
  const auto it = std::find(group.ranks.begin(), group.ranks.end(), rank);
  return it == group.ranks.end() ? -1 : it - group.ranks.begin();
}

Json to_json(const WorldAssignment& world) {
  // The mesh determines the groups of the axes, so only the user's are written.
  Json groups = Json::array();
  for (size_t i = mesh_group_count(world); i < world.groups.size(); ++i) {
    groups.push_back(write_json(world.groups[i]));
  }
  return {{"jobUid", world.job_uid},
          {"round", world.round},
          {"processesPerNode", world.processes_per_node},
          {"mesh", {{"pipeline", world.pipeline}, {"data", world.data}, {"tensor", world.tensor}}},
          {"nodes", write_json(world.nodes)},
          {"groups", std::move(groups)}};
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
  read_json(*nodes, world.nodes, "nodes", kReadStored, problems);
  std::vector<WorldGroup> named;
  if (const Json* groups = find_member(document, "groups")) {
    read_json(*groups, named, "groups", kReadStored, problems);
  }
  if (named.size() > kNamedGroupsMax) {
    return invalid("groups: " + std::to_string(named.size()) + ", expected at most " +
                   std::to_string(kNamedGroupsMax));
  }
  if (!problems.empty()) return to_error(problems);
  TRY(check_nodes(world));
  TRY_ASSIGN(const Mesh fitting, make_mesh({.world_size = world.world_size(),
                                            .pipeline = world.pipeline,
                                            .tensor = world.tensor}));
  if (mesh_of(world) != fitting) {
    return invalid("mesh.data: " + std::to_string(world.data) + ", expected " +
                   std::to_string(fitting.data) + " (the rest of the world)");
  }
  world.groups = mesh_groups(fitting);
  size_t total = 0;
  for (WorldGroup& group : named) {
    TRY(check_group(group, world.world_size(), total));
    world.groups.push_back(std::move(group));
  }
  return world;
}

std::string world_hash(const WorldAssignment& world) {
  return hex(sha256(text_of(world))).substr(0, 16);
}

}  // namespace lockstep
