// Messages between controller and agent: parsed, written and parsed again.
#include "common/api/agent_messages.h"
#include "common/base/check.h"
#include "tests/fuzz/fit_hash.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Result<Json> document =
      parse_json(fuzz::fuzz_text(data, size), {.bytes_max = kAssignmentBytesMax});
  if (!document.ok()) return 0;
  fuzz::fit_hash(*document);
  const Result<Assignment> assignment = assignment_from_json(*document);
  if (assignment.ok()) {
    CHECK(world_hash(assignment->world) == assignment->hash);
    const Result<Assignment> again = assignment_from_json(to_json(*assignment));
    CHECK(again.ok() && *again == *assignment);
  }
  const Result<AgentState> state = agent_state_from_json(*document);
  if (state.ok()) {
    const Json written = to_json(*state);
    CHECK(dump_json(written).size() <= kAgentStateBytesMax);
    CHECK(agent_state_from_json(written).ok());
  }
  const Result<WorldAssignment> world = world_from_json(*document);
  if (world.ok()) {
    for (int64_t rank = 0; rank < world->world_size(); rank += world->world_size() / 8 + 1) {
      CHECK(coordinates(*world, rank).place < std::ssize(world->members));
    }
    const Result<WorldAssignment> again = world_from_json(to_json(*world));
    CHECK(again.ok() && *again == *world);
  }
  return 0;
}
