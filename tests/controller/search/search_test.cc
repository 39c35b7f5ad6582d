#include "tests/controller/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/base/log.h"
#include "tests/controller/search/moves.h"
#include "tests/controller/search/world.h"
#include "tests/controller/sim/mutants.h"

namespace lockstep::search {
namespace {

class Quiet : public ::testing::Environment {
  void SetUp() override { set_log_options({.minimum = LogLevel::kError}); }
};
const auto* const kQuiet = ::testing::AddGlobalTestEnvironment(new Quiet);

std::string path_of(const SearchResult& result) {
  std::string text = result.violation + "\n";
  for (const std::string& move : result.path) text += move + "\n";
  return text;
}

// Makes the first move of that kind, of the last such object if `last`.
void make(World& world, MoveKind kind, bool last = false) {
  std::vector<Move> moves = moves_of(world);
  std::erase_if(moves, [kind](const Move& move) { return move.kind != kind; });
  ASSERT_FALSE(moves.empty());
  apply(world, last ? moves.back() : moves.front());
}

// Goes the fair way until the move is possible as often as that.
void go_until(World& world, MoveKind kind, int64_t times) {
  constexpr int kMovesMax = 200;
  for (int i = 0; i < kMovesMax; ++i) {
    const std::vector<Move> moves = moves_of(world);
    const auto is_it = [kind](const Move& move) { return move.kind == kind; };
    if (std::ranges::count_if(moves, is_it) >= times) return;
    ASSERT_FALSE(moves.empty());
    apply(world, moves.front());
  }
  FAIL() << "the move never becomes possible";
}

TEST(Search, EveryOrderWithoutFaultsCompletesTheJob) {
  const sim::Mutation none;
  const SearchResult result = search(none, {.faults = 0});
  EXPECT_TRUE(result.is_complete);
  EXPECT_EQ(result.violation, "") << path_of(result);
  EXPECT_GE(result.states, 1000u);
  EXPECT_GE(result.depth, 40u);
}

// build/bin/explore has no such bound.
TEST(Search, OrdersWithTwoFaultsKeepTheInvariants) {
  const sim::Mutation none;
  const SearchResult result = search(none, {.faults = 2, .states_max = 50'000});
  EXPECT_EQ(result.violation, "") << path_of(result);
}

TEST(Search, AFairClusterCompletesTheJobWithoutARestart) {
  const sim::Mutation none;
  World world = first_world(none, 0);
  for (std::vector<Move> moves = moves_of(world); !world.is_at_goal(); moves = moves_of(world)) {
    ASSERT_FALSE(moves.empty());
    apply(world, moves.front());
  }
  EXPECT_EQ(world.violation, "");
  EXPECT_EQ(world.job->job.status.state, "Complete");
  EXPECT_EQ(world.job->job.status.round, 1);
  EXPECT_EQ(world.job->job.status.restarts, 0);
  EXPECT_EQ(world.pods.size(), 2u);
}

TEST(Search, TheOrderOfIndependentMovesLeadsToTheSameState) {
  const sim::Mutation none;
  World world = first_world(none, 0);
  // Keeps both ranks from ending before the other one can.
  go_until(world, MoveKind::kFinish, 2);
  World other = world;
  EXPECT_EQ(world.digest(), other.digest());
  make(world, MoveKind::kFinish);
  EXPECT_NE(world.digest(), other.digest());
  make(world, MoveKind::kFinish);
  make(other, MoveKind::kFinish, true);
  make(other, MoveKind::kFinish);
  EXPECT_EQ(world.digest(), other.digest());
}

TEST(Search, FindsPlantedMistakesAlone) {
  const std::vector<sim::Mutant> mutants = sim::all_mutants();
  for (const char* name :
       {"no placement", "no Secret is created", "every round counts as a restart",
        "a restart counts twice", "pods are deleted without a UID", "assignments of another round",
        "every report says Completed"}) {
    const auto mutant = std::ranges::find_if(
        mutants, [name](const sim::Mutant& each) { return each.name == name; });
    ASSERT_NE(mutant, mutants.end()) << name;
    const SearchResult result = search(mutant->mutation, {.faults = 1, .states_max = 20'000});
    EXPECT_NE(result.violation, "") << name;
  }
}

}  // namespace
}  // namespace lockstep::search
