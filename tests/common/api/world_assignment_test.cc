#include "common/api/world_assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "common/api/rank_list.h"
#include "common/api/round_members.h"
#include "common/base/random.h"
#include "common/base/sha256.h"

namespace lockstep {
namespace {

TrainingJobSpec spec_of(int64_t nodes, int64_t processes) {
  TrainingJobSpec spec;
  spec.nodes = nodes;
  spec.processesPerNode = processes;
  return spec;
}

WorldInput input_of(int64_t nodes, int64_t port = 29500) {
  WorldInput input{.job_uid = "uid-1", .round = 3, .members = {}};
  for (int64_t i = 0; i < nodes; ++i) {
    input.members.push_back(
        {.index = i, .incarnation = 1, .host = "10.0.0." + std::to_string(i + 1), .port = port});
  }
  return input;
}

WorldAssignment world_of(const TrainingJobSpec& spec) {
  Result<WorldAssignment> world = make_world(spec, input_of(spec.nodes));
  EXPECT_TRUE(world.ok()) << world.error().message;
  return *world;
}

using Ranks = std::vector<int64_t>;

TEST(WorldAssignment, TwoNodesOfFourProcessesAreRanksZeroToSevenOnPort29500) {
  TrainingJobSpec spec = spec_of(2, 4);
  spec.processGroups = {{.name = "even", .ranks = "0::2"}};
  const WorldAssignment world = world_of(spec);
  EXPECT_EQ(world.world_size(), 8);
  for (const WorldMember& node : world.members) EXPECT_EQ(node.port, 29500);
  EXPECT_EQ(coordinates(world, 4).place, 1);
  EXPECT_EQ(coordinates(world, 4).local_rank, 0);
  EXPECT_EQ(coordinates(world, 7).place, 1);
  EXPECT_EQ(coordinates(world, 7).local_rank, 3);

  const WorldGroup& even = world.groups.back();
  EXPECT_EQ(even.name, "even");
  EXPECT_EQ(even.ranks, (Ranks{0, 2, 4, 6}));
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(group_rank(even, 2 * i), i);
  EXPECT_EQ(group_rank(even, 3), -1);
}

TEST(WorldAssignment, AMeshOfTwoByTwoByTwoHasTheTextbooksGroups) {
  TrainingJobSpec spec = spec_of(2, 4);
  spec.parallelism = {.tensor = 2, .pipeline = 2};
  const WorldAssignment world = world_of(spec);
  EXPECT_EQ(world.data, 2);
  const std::map<std::string, Ranks> expected = {
      {"tensor.0", {0, 1}},   {"tensor.1", {2, 3}},   {"tensor.2", {4, 5}},
      {"tensor.3", {6, 7}},   {"data.0", {0, 2}},     {"data.1", {1, 3}},
      {"data.2", {4, 6}},     {"data.3", {5, 7}},     {"pipeline.0", {0, 4}},
      {"pipeline.1", {1, 5}}, {"pipeline.2", {2, 6}}, {"pipeline.3", {3, 7}}};
  std::map<std::string, Ranks> found;
  for (const WorldGroup& group : world.groups) found[group.name] = group.ranks;
  EXPECT_EQ(found, expected);
  EXPECT_EQ(coordinates(world, 5),
            (RankCoordinates{.place = 1, .local_rank = 1, .pipeline = 1, .data = 0, .tensor = 1}));
}

TEST(WorldAssignment, EveryRankIsInExactlyOneGroupOfEachAxisOnAnyMesh) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    for (int i = 0; i < 50; ++i) {
      const auto draw = [&] { return static_cast<int64_t>(random.below(4)) + 1; };
      const int64_t tensor = draw();
      const int64_t pipeline = draw();
      TrainingJobSpec spec = spec_of(pipeline * draw(), tensor * draw());
      spec.parallelism.tensor = tensor;
      spec.parallelism.pipeline = pipeline;
      const WorldAssignment world = world_of(spec);
      for (const std::string axis : {"tensor.", "data.", "pipeline."}) {
        Ranks members;
        for (const WorldGroup& group : world.groups) {
          if (!group.name.starts_with(axis)) continue;
          EXPECT_TRUE(std::is_sorted(group.ranks.begin(), group.ranks.end()));
          members.insert(members.end(), group.ranks.begin(), group.ranks.end());
        }
        std::sort(members.begin(), members.end());
        Ranks all(static_cast<size_t>(world.world_size()));
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(members, all) << axis;
      }
    }
  }
}

TEST(WorldAssignment, DoesNotDependOnTheOrderOfItsInput) {
  const TrainingJobSpec spec = spec_of(4, 2);
  WorldInput input = input_of(4);
  const WorldAssignment world = *make_world(spec, input);
  std::reverse(input.members.begin(), input.members.end());
  EXPECT_EQ(*make_world(spec, input), world);
  EXPECT_EQ(world_hash(*make_world(spec, input)), world_hash(world));
}

TEST(WorldAssignment, HashChangesWithEveryPartOfTheWorldAndWithNothingElse) {
  TrainingJobSpec spec = spec_of(2, 2);
  const WorldInput input = input_of(2);
  std::set<std::string> hashes = {world_hash(*make_world(spec, input))};
  spec.suspend = true;  // not part of the world
  EXPECT_EQ(world_hash(*make_world(spec, input)), *hashes.begin());

  const auto expect_new = [&](const TrainingJobSpec& changed, const WorldInput& with) {
    EXPECT_TRUE(hashes.insert(world_hash(*make_world(changed, with))).second);
  };
  WorldInput changed = input;
  changed.round = 4;
  expect_new(spec, changed);
  changed = input;
  changed.job_uid = "uid-2";
  expect_new(spec, changed);
  changed = input;
  changed.members[1].incarnation = 2;
  expect_new(spec, changed);
  changed = input;
  changed.members[1].host = "10.0.0.9";
  expect_new(spec, changed);
  changed = input;
  changed.members[0].port = 29600;
  expect_new(spec, changed);
  spec.parallelism.tensor = 2;
  expect_new(spec, input);
  spec.processGroups = {{.name = "even", .ranks = "0::2"}};
  expect_new(spec, input);
  EXPECT_EQ(hashes.begin()->size(), 16u);
}

TEST(WorldAssignment, HashIsTheSameInEveryVersion) {  // else a new controller restarts running jobs
  EXPECT_EQ(world_hash(world_of(spec_of(2, 4))), "bc2332a62c9a8e51");
}

TEST(WorldAssignment, HashIsThatOfTheDocument) {
  TrainingJobSpec spec = spec_of(3, 2);
  WorldInput input = input_of(3);
  const auto expect_same = [&] {
    const WorldAssignment world = *make_world(spec, input);
    EXPECT_EQ(world_hash(world), hex(sha256(dump_json(to_json(world)))).substr(0, 16));
  };
  expect_same();
  spec.processGroups = {{.name = "even", .ranks = "0::2"}, {.name = "all", .ranks = "0-5"}};
  expect_same();
  for (const char* text : {"fd00::1", "a \"quoted\" one", "back\\slash", "tab\there", "h\u00f6st",
                           "not UTF-8: \xff", "del \x7f"}) {
    SCOPED_TRACE(text);
    input.job_uid = input.members[1].host = text;
    expect_same();
  }
}

TEST(WorldAssignment, ReadsBackWhatItWrote) {
  TrainingJobSpec spec = spec_of(4, 2);
  spec.parallelism = {.tensor = 2, .pipeline = 2};
  spec.processGroups = {{.name = "ends", .ranks = "7,0"}, {.name = "all", .ranks = "0-7"}};
  const WorldAssignment world = world_of(spec);
  const Result<WorldAssignment> read = world_from_json(*parse_json(dump_json(to_json(world))));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, world);
}

TEST(WorldAssignment, RefusesWorldsThatCannotBe) {
  const auto error_of = [](const TrainingJobSpec& spec, const WorldInput& input) {
    const Result<WorldAssignment> world = make_world(spec, input);
    return world.ok() ? "" : world.error().message;
  };
  TrainingJobSpec spec = spec_of(2, 3);
  spec.parallelism.tensor = 4;
  EXPECT_EQ(error_of(spec, input_of(2)),
            "[mesh] pipeline 1 x tensor 4 does not divide the world of 6");
  EXPECT_EQ(error_of(spec_of(2, 2), input_of(0)), "nodes: none, expected at least 1");
  EXPECT_EQ(error_of(spec_of(2, 2), input_of(2, 65535)),
            "nodes[0]: port 65535 with 2 processes, expected 1 to 65534");
  WorldInput twice = input_of(2);
  twice.members[1].index = 0;
  EXPECT_EQ(error_of(spec_of(2, 2), twice),
            "nodes[1]: index 0 is also that of nodes[0], expected each index once");
  WorldInput nowhere = input_of(2);
  nowhere.members[1].host = "";
  EXPECT_EQ(error_of(spec_of(2, 2), nowhere), "nodes[1]: no host, expected an address");
  spec = spec_of(2, 2);
  spec.processGroups = {{.name = "far", .ranks = "0,4"}};
  EXPECT_EQ(error_of(spec, input_of(2)),
            "processGroups \"far\": rank 4 is not in the world, expected 0 to 3");
  EXPECT_NE(error_of(spec_of(1, INT64_MAX), input_of(1)), "");
  spec = spec_of(2, 2);
  spec.parallelism = {.tensor = INT64_MAX, .pipeline = INT64_MAX};
  EXPECT_NE(error_of(spec, input_of(2)), "");
}

// Node 1 of 4 is left out, and the last two are servers.
WorldAssignment a_world_with_servers() {
  TrainingJobSpec spec = spec_of(5, 2);
  spec.parallelism.tensor = 2;
  spec.parallelism.sharding = "optimizer";
  WorldInput input = input_of(5);
  input.members.erase(input.members.begin() + 1);
  input.members[0].role = MemberRole::kServer;  // index 0
  input.members[3].role = MemberRole::kServer;  // index 4
  const Result<WorldAssignment> world = make_world(spec, input);
  EXPECT_TRUE(world.ok()) << world.error().message;
  return *world;
}

TEST(WorldAssignment, RanksFollowThePlaceInTheListAndNotTheNodeIndex) {
  WorldInput input = input_of(5);
  input.members.erase(input.members.begin() + 3);
  input.members.erase(input.members.begin());
  const WorldAssignment world = *make_world(spec_of(5, 2), input);  // nodes 1, 2 and 4
  EXPECT_EQ(world.world_size(), 6);
  EXPECT_EQ(world.data, 6);
  const int64_t indices[] = {1, 2, 4};
  for (int64_t rank = 0; rank < 6; ++rank) {
    const RankCoordinates at = coordinates(world, rank);
    EXPECT_EQ(at.place, rank / 2);
    EXPECT_EQ(at.local_rank, rank % 2);
    EXPECT_EQ(rank_of(world, at.place, at.local_rank), rank);
    EXPECT_EQ(member_of(world, rank).index, indices[rank / 2]);
    EXPECT_EQ(place_of(world, member_of(world, rank).index), at.place);
  }
  EXPECT_EQ(place_of(world, 0), std::nullopt);
  EXPECT_EQ(place_of(world, 3), std::nullopt);
  EXPECT_EQ(place_of(world, 5), std::nullopt);
  EXPECT_FALSE(is_ordinary(world));
  EXPECT_TRUE(is_ordinary(world_of(spec_of(3, 2))));
  input.members.pop_back();
  input.members[0].index = 0;
  input.members[1].index = 1;
  EXPECT_TRUE(is_ordinary(*make_world(spec_of(5, 2), input))) << "the last ones are left out";
}

// Changes of each field that says how ranks share state.
constexpr void (*kSharing[])(StateSharing&) = {
    [](StateSharing& sharing) { sharing.sequenceParallel = true; },
    [](StateSharing& sharing) { sharing.sharding = "parameters"; },
    [](StateSharing& sharing) { sharing.shardingGroup = "node"; },
    [](StateSharing& sharing) { sharing.reshardAfterForward = false; },
    [](StateSharing& sharing) { sharing.prefetch = false; },
    [](StateSharing& sharing) { sharing.gatherPrecision = "bf16"; },
    [](StateSharing& sharing) { sharing.reducePrecision = "bf16"; },
    [](StateSharing& sharing) { sharing.transferPrecision = "bf16"; },
    [](StateSharing& sharing) { sharing.offload = "optimizer"; },
    [](StateSharing& sharing) { sharing.offloadPath = "/scratch"; },
    [](StateSharing& sharing) { sharing.exchange = "firstRank"; },
    [](StateSharing& sharing) {
      sharing.stages = {1, 1};
    },
    [](StateSharing& sharing) { sharing.weightStashing = false; },
    [](StateSharing& sharing) { sharing.verticalSync = true; }};

TEST(WorldAssignment, IsOrdinaryOnlyIfEachWorkerHoldsEverything) {
  const auto with = [](const ParallelismSpec& parallelism) {
    TrainingJobSpec spec = spec_of(2, 2);
    spec.parallelism = parallelism;
    return world_of(spec);
  };
  EXPECT_TRUE(is_ordinary(with({})));
  EXPECT_FALSE(is_ordinary(with({.tensor = 2})));
  EXPECT_FALSE(is_ordinary(with({.pipeline = 2})));
  for (const auto& change : kSharing) {
    ParallelismSpec parallelism;
    change(parallelism);
    EXPECT_FALSE(is_ordinary(with(parallelism)));
  }
}

TEST(WorldAssignment, ServersComeAfterTheWorkersAndAreNotInTheMesh) {
  const WorldAssignment world = a_world_with_servers();
  Ranks indices;
  for (const WorldMember& member : world.members) indices.push_back(member.index);
  EXPECT_EQ(indices, (Ranks{2, 3, 0, 4}));
  EXPECT_TRUE(has_servers(world));
  EXPECT_FALSE(is_ordinary(world));
  EXPECT_EQ(world.world_size(), 8);
  EXPECT_EQ(world.data * world.tensor, 4);
  for (const WorldGroup& group : world.groups) {
    for (const int64_t rank : group.ranks) EXPECT_LT(rank, 4) << group.name;
  }
  EXPECT_EQ(
      coordinates(world, 5),
      (RankCoordinates{.place = 2, .local_rank = 1, .pipeline = -1, .data = -1, .tensor = -1}));
  EXPECT_EQ(member_of(world, 5).index, 0);
}

TEST(WorldAssignment, EveryPartThatIsNotOrdinaryIsInTheDocumentAndTheHash) {
  TrainingJobSpec spec = spec_of(4, 1);
  WorldInput input = input_of(4);
  std::set<std::string> hashes = {world_hash(*make_world(spec, input))};
  const auto expect_new = [&] {
    const WorldAssignment world = *make_world(spec, input);
    const Json document = to_json(world);
    EXPECT_TRUE(hashes.insert(world_hash(world)).second);
    EXPECT_EQ(world_hash(world), hex(sha256(dump_json(document))).substr(0, 16));
    const Result<WorldAssignment> read = world_from_json(document);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, world);
    EXPECT_FALSE(is_ordinary(*read));
  };
  for (const auto& change : kSharing) {
    change(spec.parallelism);
    expect_new();
  }
  spec.parallelism.pipeline = 2;
  expect_new();
  static_cast<StateSharing&>(spec.parallelism) = {};
  expect_new();
  EXPECT_EQ(make_world(spec, input)->layout.schedule, "") << "a command has its own";
  spec.train.emplace();
  expect_new();
  EXPECT_EQ(make_world(spec, input)->layout.schedule, "1f1b");
  spec.parallelism.pipelineSchedule = "interleaved";
  spec.parallelism.virtualStages = 2;
  expect_new();
  EXPECT_EQ(make_world(spec, input)->layout.virtualStages, 2);
  spec.train.reset();
  spec.parallelism.pipeline = 1;
  input.members[3].role = MemberRole::kServer;
  expect_new();
  input.members[3] = input_of(9).members[8];
  expect_new();
}

TEST(WorldAssignment, ALayoutSaysOnlyWhatIsNotTheDefault) {
  TrainingJobSpec spec = spec_of(2, 2);
  spec.parallelism.sharding = "parameters";
  spec.parallelism.reshardAfterForward = false;
  const Json expected = {{"sharding", "parameters"}, {"reshardAfterForward", false}};
  EXPECT_EQ(to_json(world_of(spec)).at("layout"), expected);
  EXPECT_FALSE(to_json(world_of(spec_of(2, 2))).contains("layout"));
}

TEST(WorldAssignment, EncryptionIsSaidOnlyWhereItIsRequired) {
  TrainingJobSpec spec = spec_of(2, 2);
  EXPECT_FALSE(to_json(world_of(spec)).contains("encryption"));
  const std::string before = world_hash(world_of(spec));
  spec.security.encryption = "required";
  const WorldAssignment world = world_of(spec);
  Json document = to_json(world);
  EXPECT_EQ(document.at("encryption"), "required");
  EXPECT_NE(world_hash(world), before);
  EXPECT_EQ(world_hash(world), hex(sha256(dump_json(document))).substr(0, 16));
  EXPECT_FALSE(is_ordinary(world));
  EXPECT_EQ(*world_from_json(document), world);
  document["encryption"] = "some";
  EXPECT_EQ(world_from_json(document).error().message,
            "encryption: found \"some\", expected \"required\"");
}

TEST(WorldAssignment, ReadsMembersInAnyOrder) {
  Json document = to_json(world_of(spec_of(2, 1)));
  std::swap(document["nodes"][0], document["nodes"][1]);
  const Result<WorldAssignment> world = world_from_json(document);
  ASSERT_TRUE(world.ok()) << world.error().message;
  EXPECT_EQ(place_of(*world, 0), 1);
  EXPECT_EQ(member_of(*world, 0).index, 1);
  EXPECT_FALSE(is_ordinary(*world));
}

TEST(WorldAssignment, RefusesMembersAndLayoutsThatCannotBe) {
  const Json good = to_json(a_world_with_servers());
  const auto error_with = [&](const char* pointer, Json value) {
    Json changed = good;
    changed[Json::json_pointer(pointer)] = std::move(value);
    const Result<WorldAssignment> world = world_from_json(changed);
    return world.ok() ? "" : world.error().message;
  };
  EXPECT_EQ(error_with("/round", 4), "");
  EXPECT_EQ(error_with("/nodes/2/role", "cook"),
            "nodes[2].role: found the string \"cook\", expected a known name");
  EXPECT_EQ(error_with("/nodes/2/index", 3),
            "nodes[2]: index 3 is also that of nodes[1], expected each index once");
  EXPECT_EQ(error_with("/nodes/2/index", -1), "nodes[2]: index -1, expected 0 to 1000000");
  EXPECT_EQ(error_with("/nodes/2/index", 1'000'001),
            "nodes[2]: index 1000001, expected 0 to 1000000");
  EXPECT_EQ(error_with("/nodes/3/role", "worker"),
            "nodes[3]: a worker after a server, expected the workers first");
  EXPECT_EQ(error_with("/nodes/0/role", "server"),
            "nodes[1]: a worker after a server, expected the workers first");
  EXPECT_EQ(error_with("/nodes", Json::array({good["nodes"][2]})),
            "nodes: servers only, expected at least 1 worker");
  EXPECT_EQ(error_with("/layout/sharding", "some"),
            "layout.sharding: found \"some\", expected none, optimizer, gradients or parameters");
  EXPECT_EQ(error_with("/layout/exchange", "ring"),
            "layout.exchange: found \"ring\", expected allReduce, firstRank or host");
  EXPECT_EQ(error_with("/layout/schedule", "1f1b"),
            "layout.schedule: found \"1f1b\", expected none without a pipeline");
  EXPECT_EQ(error_with("/layout/schedule", "fast"),
            "layout.schedule: found \"fast\", expected naive, gpipe, 1f1b, "
            "interleaved, zerobubble or pipedream");
  EXPECT_EQ(error_with("/layout", 1), "layout: found 1, expected an object");
  EXPECT_EQ(error_with("/groups", Json{{{"name", "x"}, {"ranks", {4}}}}),
            "group \"x\": rank 4, expected each once, from 0 to 3");
  Json piped = to_json(world_of(spec_of(2, 1)));
  piped["mesh"] = {{"data", 1}, {"pipeline", 2}, {"tensor", 1}};
  piped["layout"] = {{"schedule", "interleaved"}};
  EXPECT_EQ(world_from_json(piped).error().message,
            "layout.virtualStages: 1 with the schedule \"interleaved\", expected 2 or more");
  piped["layout"] = {{"schedule", "1f1b"}, {"virtualStages", 2}};
  EXPECT_EQ(world_from_json(piped).error().message,
            "layout.virtualStages: 2 with the schedule \"1f1b\", expected 1");
}

TEST(WorldAssignment, TheFileOfACommandHasTheGroupsOfItsMesh) {
  TrainingJobSpec spec = spec_of(2, 2);
  spec.processGroups = {{.name = "even", .ranks = "0::2"}};
  WorldAssignment world = world_of(spec);
  EXPECT_EQ(world_file(world), to_json(world));
  spec.parallelism.tensor = 2;
  world = world_of(spec);
  std::vector<std::string> groups;
  const Json file = world_file(world);
  for (const Json& group : file["groups"]) {
    groups.push_back(group["name"].get<std::string>() + " " + group["ranks"].dump());
  }
  EXPECT_EQ(groups, (std::vector<std::string>{"tensor.0 [0,1]", "tensor.1 [2,3]", "data.0 [0,2]",
                                              "data.1 [1,3]", "pipeline.0 [0]", "pipeline.1 [1]",
                                              "pipeline.2 [2]", "pipeline.3 [3]", "even [0,2]"}));
  EXPECT_EQ(to_json(world)["groups"].size(), 1u);
}

TEST(WorldAssignment, BoundsTheUsersGroupsSoThatAnAssignmentStaysSmall) {
  TrainingJobSpec spec = spec_of(1024, 64);
  for (int i = 0; i < 4; ++i) {
    spec.processGroups.push_back({.name = "g" + std::to_string(i), .ranks = ":"});
  }
  const Result<WorldAssignment> world = make_world(spec, input_of(1024));
  ASSERT_TRUE(world.ok()) << world.error().message;
  EXPECT_LT(dump_json(to_json(*world)).size(), size_t{4} << 20);
  spec.processGroups.push_back({.name = "g4", .ranks = "0"});
  EXPECT_EQ(make_world(spec, input_of(1024)).error().message,
            "processGroups: more than 262144 ranks in all");

  Json document = to_json(world_of(spec_of(1, 1)));
  for (int i = 0; i < 257; ++i) {
    document["groups"].push_back({{"name", "g" + std::to_string(i)}, {"ranks", {0}}});
  }
  EXPECT_EQ(world_from_json(document).error().message, "groups: 257, expected at most 256");
}

TEST(WorldAssignment, RefusesDocumentsWithAMeshOrGroupOfAnotherWorld) {
  const Json good = to_json(world_of(spec_of(2, 2)));
  ASSERT_TRUE(world_from_json(good).ok());
  const auto with = [&](const char* pointer, Json value) {
    Json changed = good;
    changed[Json::json_pointer(pointer)] = std::move(value);
    return world_from_json(changed).ok();
  };
  EXPECT_FALSE(with("/mesh/data", 3));
  EXPECT_FALSE(with("/mesh/tensor", 0));
  EXPECT_FALSE(with("/mesh/pipeline", INT64_MAX));
  EXPECT_FALSE(with("/processesPerNode", INT64_MAX));
  EXPECT_FALSE(with("/processesPerNode", -1));
  EXPECT_FALSE(with("/nodes", Json::array()));
  EXPECT_FALSE(with("/nodes/0/port", 0));
  EXPECT_FALSE(with("/nodes/0/index", 1));
  EXPECT_FALSE(with("/groups", Json{{{"name", "x"}, {"ranks", {0, 0}}}}));
  EXPECT_FALSE(with("/groups", Json{{{"name", "x"}, {"ranks", {-1}}}}));
  EXPECT_FALSE(with("/groups", 7));
  EXPECT_FALSE(world_from_json(Json::array()).ok());
}

TEST(RoundMembers, AreTheFirstNodesOrThoseThatStatusLists) {
  const auto members = [](int64_t world_size, const char* indices, int64_t processes = 1) {
    return round_members({.worldSize = world_size, .nodeIndices = indices}, processes);
  };
  EXPECT_EQ(members(3, ""), (Ranks{0, 1, 2}));
  EXPECT_EQ(members(6, "", 2), (Ranks{0, 1, 2}));
  EXPECT_EQ(members(3, "0,2,7"), (Ranks{0, 2, 7}));
  EXPECT_EQ(members(8, "1-3,5", 2), (Ranks{1, 2, 3, 5}));
  EXPECT_EQ(members(0, ""), Ranks{});
  EXPECT_EQ(members(-1, ""), Ranks{});
  EXPECT_EQ(members(INT64_MAX, ""), Ranks{});
  EXPECT_EQ(members(3, "", 2), Ranks{}) << "no whole number of nodes";
  EXPECT_EQ(members(2, "0,2,7"), Ranks{}) << "another number of nodes";
  EXPECT_EQ(members(2, "2,0"), Ranks{});
  EXPECT_EQ(members(2, "1,1"), Ranks{});
  EXPECT_EQ(members(2, "0,99999999"), Ranks{});
  EXPECT_EQ(members(2, "first"), Ranks{});
}

TEST(RoundMembers, TextReadsBackAndIsEmptyForTheFirstNodes) {
  for (const Ranks& nodes : {Ranks{0}, Ranks{0, 1, 2}, Ranks{1}, Ranks{0, 2}, Ranks{1, 2},
                             Ranks{0, 1, 2, 5, 6, 8, 9, 10}}) {
    const std::string text = node_indices_text(nodes);
    EXPECT_EQ(text.empty(), nodes.back() + 1 == std::ssize(nodes)) << text;
    EXPECT_EQ(round_members({.worldSize = std::ssize(nodes), .nodeIndices = text}, 1), nodes)
        << text;
  }
  EXPECT_EQ(node_indices_text(Ranks{0, 1, 2, 5, 6, 8, 9, 10}), "0-2,5,6,8-10");
}

struct RanksCase {
  const char* text;
  Ranks expected;  // empty: refused
};

TEST(ParseRanks, ReadsListsSpansAndSlices) {
  const RanksCase cases[] = {
      {"0,7", {0, 7}},
      {"0-3", {0, 1, 2, 3}},
      {"0::2", {0, 2, 4, 6}},
      {"1:7:2", {1, 3, 5}},
      {"7,0", {7, 0}},
      {"6-7, 0::4", {6, 7, 0, 4}},
      {":2", {0, 1}},
      {"6:", {6, 7}},
      {":", {0, 1, 2, 3, 4, 5, 6, 7}},
      {"3-3", {3}},
      {"", {}},
      {",", {}},
      {"0,", {}},
      {"0,0", {}},
      {"8", {}},
      {"0-8", {}},
      {"3-1", {}},
      {"-1", {}},
      {"0::0", {}},
      {"0::-1", {}},
      {"4:4", {}},
      {"8::2", {}},
      {"0:9", {}},
      {"a", {}},
      {"1:2:3:4", {}},
      {"1-2-3", {}},
      {"99999999999999999999", {}},
      {"9223372036854775807", {}},
      {"0:9223372036854775807:9223372036854775807", {0}},
  };
  for (const RanksCase& c : cases) {
    const Result<Ranks> ranks = parse_ranks(c.text, 8);
    EXPECT_EQ(ranks.ok(), !c.expected.empty()) << c.text;
    if (ranks.ok()) {
      EXPECT_EQ(*ranks, c.expected) << c.text;
    }
  }
}

}  // namespace
}  // namespace lockstep
