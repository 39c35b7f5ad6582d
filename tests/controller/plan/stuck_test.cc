// Finds the rank that blocks the others, from what the agents report of all ranks.
#include "controller/plan/stuck.h"

#include <gtest/gtest.h>

#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

// Returns the rank for a sign in the tests' tables: "3" waits for rank 3, "." for nobody, "x" has
// ended, "~" is lifeless (and would wait for rank 0), "?" has no report.
WorkerState rank_of(char sign) {
  WorkerState state;
  state.running = sign != 'x';
  state.phase = WorkerPhase::kTraining;
  state.is_lifeless = sign == '~';
  const bool waits = (sign >= '0' && sign <= '9') || sign == '~' || sign == 'x';
  if (waits) {
    state.wait = WorkerWait{.operation = "barrier #2",
                            .ranks = "0-9",
                            .group_size = 10,
                            .waits_for = {sign >= '0' && sign <= '9' ? sign - '0' : 0},
                            .seconds = 12};
  }
  return state;
}

struct World {
  std::vector<WorkerState> states;
  RankStates ranks;

  explicit World(const std::string& signs) {
    for (const char sign : signs) states.push_back(rank_of(sign));
    for (size_t i = 0; i < signs.size(); ++i) {
      ranks.push_back(signs[i] == '?' ? nullptr : &states[i]);
    }
  }
};

std::string found(const std::string& signs) {
  const World world(signs);
  const auto stuck = find_stuck(world.ranks);
  if (!stuck) return "nobody";
  std::string text = stuck->rank < 0 ? "circle:" : std::to_string(stuck->rank) + ":";
  for (const int64_t rank : stuck->waiting) text += " " + std::to_string(rank);
  return text;
}

TEST(FindStuck, FollowsThoseWhoWaitToTheOneWhoDoesNot) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"....", "nobody"},
      {"", "nobody"},
      {"3...", "3: 0"},
      {"301.", "3: 0 1 2"},           // a ring that is blocked by rank 3
      {"1.3.", "1: 0"},               // two ranks block one each: the lower one is named
      {"33.~", "3: 0 1"},             // the wait of a lifeless rank is ignored
      {"33.x", "3: 0 1"},             // so is the wait of a rank that has ended
      {"33.?", "3: 0 1"},             // rank 3 has no report at all
      {"1200..", "circle: 0 1 2 3"},  // rank 3 waits for a rank of a cycle
      {"..2.", "circle: 2"},          // rank 2 wrongly waits for itself
      {"9...", "nobody"},             // there is no rank 9
      {"?~x.", "nobody"},
  };
  for (const auto& [signs, who] : cases) {
    EXPECT_EQ(found(signs), who) << signs;
  }
}

TEST(FindStuck, ACircleIsNamedWhereItHoldsUpMost) {
  EXPECT_EQ(found("10.."), "circle: 0 1");
  EXPECT_EQ(found("103."), "circle: 0 1");  // rank 3 blocks only one rank
  EXPECT_EQ(found("10555."), "5: 2 3 4");
  EXPECT_EQ(found("1055.."), "5: 2 3") << "on a tie, a rank rather than a cycle";
}

// Ranks 0 and 1 are on one host, ranks 2 and 3 on another. Each waits for its neighbour's part and
// for the one from the other host.
TEST(FindStuck, RanksThatWaitForEachOtherAndForAThirdAreHeldUpByTheThird) {
  World world("1.3.");
  world.states[1] = rank_of('0');
  world.states[1].wait->waits_for = {0, 3};
  world.states[0].wait->waits_for = {1, 2};
  world.states[2].wait->waits_for = {0, 3};
  const auto stuck = find_stuck(world.ranks);
  ASSERT_TRUE(stuck);
  EXPECT_EQ(stuck->rank, 3);
  EXPECT_EQ(stuck->waiting, (std::vector<int64_t>{0, 1, 2}));
}

TEST(FindStuck, TakesTimeInProportionToTheRanks) {
  constexpr int64_t kRanks = 200'000;
  WorkerState states[2] = {rank_of('.'), rank_of('.')};
  std::vector<WorkerState> chain(kRanks, rank_of('0'));
  RankStates ranks;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    chain[static_cast<size_t>(rank)].wait->waits_for = {rank + 1};
    ranks.push_back(&chain[static_cast<size_t>(rank)]);
  }
  ranks.push_back(&states[0]);
  const auto stuck = find_stuck(ranks);
  ASSERT_TRUE(stuck);
  EXPECT_EQ(stuck->rank, kRanks);
  EXPECT_EQ(stuck->waiting.size(), static_cast<size_t>(kRanks));
  EXPECT_LT(stuck_text(*stuck, {.ranks = ranks, .node = ""}).size(), 300u);
}

TEST(StuckText, SaysWhoIsMissingFromWhatAndWhoWaits) {
  World world("3.2~");
  world.states[0].wait = {.operation = "all_reduce #17",
                          .ranks = "0, 3",
                          .group_size = 2,
                          .waits_for = {3},
                          .seconds = 40};
  auto stuck = find_stuck(world.ranks);
  ASSERT_TRUE(stuck);
  EXPECT_EQ(stuck_text(*stuck, {.ranks = world.ranks, .node = "gpu-7"}),
            "rank 3 on gpu-7, which shows no sign of life, is missing from all_reduce #17 of the "
            "group of ranks 0, 3; rank 0 waits for it");
  world.states[3] = rank_of('.');
  world.states[3].phase = WorkerPhase::kSaving;
  world.states[0].wait->group_size = 4;
  stuck = find_stuck(world.ranks);
  EXPECT_EQ(stuck_text(*stuck, {.ranks = world.ranks, .node = ""}),
            "rank 3, in phase Saving, is missing from all_reduce #17 of all 4 ranks; rank 0 waits "
            "for it");
  world.states[3].phase = WorkerPhase::kTraining;
  EXPECT_EQ(stuck_text(*stuck, {.ranks = world.ranks, .node = "gpu-7", .stage = 1}),
            "rank 3 on gpu-7, a rank of stage 1, is missing from all_reduce #17 of all 4 ranks; "
            "rank 0 waits for it");
  world.states[3].micro_batch = 5;
  world.states[3].is_lifeless = true;
  EXPECT_EQ(stuck_text(*stuck, {.ranks = world.ranks, .node = "gpu-7", .stage = 1}),
            "rank 3 on gpu-7, in micro-batch 5 of stage 1, which shows no sign of life, is missing "
            "from all_reduce #17 of all 4 ranks; rank 0 waits for it");
  EXPECT_EQ(stuck_text(*stuck, {.ranks = world.ranks, .node = "gpu-7"}),
            "rank 3 on gpu-7, in micro-batch 5, which shows no sign of life, is missing from "
            "all_reduce #17 of all 4 ranks; rank 0 waits for it");
  const World circle("10");
  EXPECT_EQ(stuck_text(*find_stuck(circle.ranks), {.ranks = circle.ranks, .node = ""}),
            "ranks 0-1 wait for each other: rank 0 in barrier #2 of the group of ranks 0-9 for "
            "rank 1; rank 1 in barrier #2 of the group of ranks 0-9 for rank 0");
}

// Makes the rank of agent 0 wait for that of agent 1.
void stand_still(Scene& scene, double seconds_so_far) {
  scene.agent(0).workers[0].wait = WorkerWait{.operation = "all_reduce #5",
                                              .ranks = "0-1",
                                              .group_size = 2,
                                              .waits_for = {1},
                                              .seconds = seconds_so_far};
}

TEST(StuckCondition, IsWrittenOnceWithTheTimeAndAnEventAndTakenBackWhenRanksMove) {
  Scene scene(2);
  scene.train();
  EXPECT_EQ(find_condition(scene.status(), kStuck), nullptr);
  stand_still(scene, 12);
  const Plan plan = scene.plan();
  ASSERT_EQ(only<EmitEvent>(plan).size(), 1u);
  EXPECT_EQ(only<EmitEvent>(plan)[0].reason, "Stuck");
  ASSERT_TRUE(scene.settle());
  const Condition first = condition(scene.status(), kStuck);
  EXPECT_EQ(first.status, "True");
  EXPECT_EQ(first.reason, "RankMissing");
  EXPECT_EQ(
      first.message,
      "rank 1 on machine-1 is missing from all_reduce #5 of all 2 ranks; rank 0 waits for it, "
      "since " +
          rfc3339(scene.seen.wall_now - seconds(12)));
  scene.advance(seconds(5));
  stand_still(scene, 17.5);
  EXPECT_FALSE(scene.settle()) << "the same message is not written twice";
  scene.agent(1).workers[0].is_lifeless = true;
  EXPECT_TRUE(scene.settle());
  EXPECT_NE(condition(scene.status(), kStuck).message.find("no sign of life"), std::string::npos);
  EXPECT_EQ(condition(scene.status(), kStuck).lastTransitionTime, first.lastTransitionTime);
  scene.agent(0).workers[0].wait.reset();
  EXPECT_TRUE(scene.settle());
  EXPECT_EQ(condition(scene.status(), kStuck).status, "False");
  EXPECT_FALSE(scene.settle());
}

TEST(StuckCondition, NamesTheStageAndTheMicroBatch) {
  Scene scene(2);
  scene.seen.job.spec.parallelism.pipeline = 2;
  scene.seen.job.spec.train->model.layers = 2;
  scene.train();
  stand_still(scene, 12);
  scene.agent(1).workers[0].micro_batch = 5;
  ASSERT_TRUE(scene.settle());
  const std::string message = condition(scene.status(), kStuck).message;
  EXPECT_NE(message.find("rank 1 on machine-1, in micro-batch 5 of stage 1, is missing from"),
            std::string::npos)
      << message;
}

TEST(StuckCondition, IsNotForARankThatSavesACheckpointUntilThatTakesVeryLong) {
  for (const WorkerPhase phase :
       {WorkerPhase::kSaving, WorkerPhase::kValidating, WorkerPhase::kFinishing}) {
    SCOPED_TRACE(worker_phase_name(phase));
    Scene scene(2);
    scene.train();
    stand_still(scene, 12);
    scene.agent(1).workers[0].phase = phase;
    const Plan plan = scene.plan();
    EXPECT_TRUE(plan.actions.empty());
    ASSERT_TRUE(plan.requeue_at);
    const Duration rest = scene.limits.saving_grace - seconds(12);
    EXPECT_LE(*plan.requeue_at, scene.now + rest);
    scene.advance(rest);
    for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
    EXPECT_EQ(condition(written(scene, scene.plan()), kStuck).status, "True");
    scene.advance(-seconds(1));
    scene.agent(1).workers[0].is_lifeless = true;
    EXPECT_EQ(condition(written(scene, scene.plan()), kStuck).status, "True");
  }
}

TEST(StuckCondition, StaysWhileThoseWhoWaitAreNotHeard) {
  Scene scene(2);
  scene.train();
  stand_still(scene, 12);
  ASSERT_TRUE(scene.settle());
  scene.seen.agents.clear();
  EXPECT_EQ(condition(written(scene, scene.plan()), kStuck).status, "True");
}

TEST(StuckCondition, EndsWithTheRound) {
  Scene scene(2);
  scene.train();
  stand_still(scene, 12);
  ASSERT_TRUE(scene.settle());
  scene.agent(0).workers[0].wait.reset();
  scene.fail_worker(1, 1, 1);
  for (int pass = 0; pass < 5; ++pass) scene.settle();
  EXPECT_EQ(condition(scene.status(), kStuck).status, "False");
}

}  // namespace
}  // namespace lockstep::plan
