// The bytes and hashes of ordinary worlds stay those of earlier versions: a controller whose hash
// of a round differs starts another round, in every running job.
#include <gtest/gtest.h>

#include <fstream>

#include "common/api/world_assignment.h"

namespace lockstep {
namespace {

constexpr char kGolden[] = LOCKSTEP_SOURCE_DIR "/tests/golden/worlds.txt";

struct WorldCase {
  TrainingJobSpec spec;
  WorldInput input;
};

WorldCase world_case(int64_t nodes, int64_t processes) {
  WorldCase made;
  made.spec.nodes = nodes;
  made.spec.processesPerNode = processes;
  made.input = {.job_uid = "uid-1", .round = 3, .members = {}};
  for (int64_t i = 0; i < nodes; ++i) {
    made.input.members.push_back(
        {.index = i, .incarnation = 1, .host = "10.0.0." + std::to_string(i + 1), .port = 29500});
  }
  return made;
}

std::vector<WorldCase> ordinary_worlds() {
  std::vector<WorldCase> worlds = {world_case(1, 1), world_case(2, 4), world_case(3, 2),
                                   world_case(4, 2), world_case(2, 1), world_case(40, 8)};
  worlds[2].spec.processGroups = {{.name = "even", .ranks = "0::2"},
                                  {.name = "ends", .ranks = "5,0"}};
  worlds[3].spec.parallelism.tensor = 2;
  worlds[4].input.job_uid = "a \"quoted\" uid, h\u00f6st";
  worlds[4].input.round = 1'000'000;
  worlds[4].input.members[0] = {.index = 0, .incarnation = 17, .host = "fd00::1", .port = 65535};
  worlds[4].input.members[1] = {.index = 1, .incarnation = 4, .host = "back\\slash", .port = 1};
  return worlds;
}

std::string line_of(const WorldCase& made) {
  const Result<WorldAssignment> world = make_world(made.spec, made.input);
  if (!world.ok()) return world.error().message;
  return world_hash(*world) + " " + dump_json(to_json(*world));
}

TEST(WorldGolden, OrdinaryWorldsHaveTheBytesAndHashesOfTheFirstVersion) {
  std::ifstream golden(kGolden);
  ASSERT_TRUE(golden) << kGolden;
  for (const WorldCase& made : ordinary_worlds()) {
    std::string line;
    ASSERT_TRUE(std::getline(golden, line));
    EXPECT_EQ(line_of(made), line);
  }
  std::string more;
  EXPECT_FALSE(std::getline(golden, more)) << "a world is missing here: " << more;
}

}  // namespace
}  // namespace lockstep
