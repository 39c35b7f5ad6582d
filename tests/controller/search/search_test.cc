#include "tests/controller/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "tests/controller/search/moves.h"
#include "tests/controller/search/reduction.h"
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

World after(const World& world, const Move& move) {
  World next = world;
  apply(next, move);
  return next;
}

// Returns the request that the move is about; nullptr if it is about none.
const Request* request_of(const World& world, const Move& move) {
  switch (move.kind) {
    case MoveKind::kStray:
      return world.strays[move.place].get();
    case MoveKind::kServe:
    case MoveKind::kAnswer:
    case MoveKind::kLoseRequest:
    case MoveKind::kLoseReply:
    case MoveKind::kQuota:
    case MoveKind::kTouch:
      return world.process.run->open[move.place].request.get();
    default:
      return nullptr;
  }
}

// Returns the move of `later` that is the same as `move` in `world`; nullopt if it isn't possible.
std::optional<Move> same_move(const World& world, const Move& move, const World& later) {
  for (const Move& other : moves_of(later)) {
    const bool is_same = other.kind == move.kind && other.object == move.object &&
                         request_of(later, other) == request_of(world, move);
    if (is_same) return other;
  }
  return std::nullopt;
}

// Makes a plan that changes nothing, if one is due.
World without_idle_plan(World world) {
  if (world.process.may_plan() && plan_changes_nothing(world)) {
    apply(world, {.kind = MoveKind::kPlan});
  }
  return world;
}

// Returns whether the move changes nothing but what the controller knows.
bool is_of_controller(MoveKind kind) {
  switch (kind) {
    case MoveKind::kJobEvent:
    case MoveKind::kPodEvent:
    case MoveKind::kListJobs:
    case MoveKind::kListPods:
    case MoveKind::kHear:
    case MoveKind::kExpirePods:
    case MoveKind::kOldReport:
      return true;
    default:
      return false;
  }
}

struct Pairs {
  int64_t tried = 0;
  std::string failure{};
};

void try_in_both_orders(const World& world, const Move& needed, const Move& other, Pairs& pairs) {
  const bool too_many = is_fault(needed.kind) && is_fault(other.kind) && world.faults_left < 2;
  if (too_many) return;
  ++pairs.tried;
  const std::string names = needed.name() + ", " + other.name();
  if (is_idle_forever(world) && is_of_controller(other.kind)) return;
  const World one = after(world, needed);
  const World two = after(world, other);
  if (needed.kind == MoveKind::kCrash && is_of_controller(other.kind)) {
    World crashed = after(two, needed);
    if (is_fault(other.kind)) ++crashed.faults_left;
    if (crashed.digest() != one.digest()) pairs.failure = names + ": more than news was lost";
    return;
  }
  if (needed.kind == MoveKind::kPlan && !one.process.run && plan_changes_nothing(world)) {
    const uint64_t with_plan = without_idle_plan(after(one, other)).digest();
    if (without_idle_plan(two).digest() != with_plan) pairs.failure = names + ": not the same";
    return;
  }
  if (needed.kind == MoveKind::kPodEvent && other.kind == MoveKind::kExpirePods &&
      one.process.coming_pods.empty()) {
    World listed = after(two, {.kind = MoveKind::kListPods});
    ++listed.faults_left;
    if (listed.digest() != one.digest()) pairs.failure = names + ": news was lost";
    return;
  }
  const std::optional<Move> second = same_move(world, other, one);
  const std::optional<Move> first = same_move(world, needed, two);
  if (first && !second && other.kind == MoveKind::kHear) {
    // The answer told the same report.
    if (after(two, *first).digest() != one.digest()) pairs.failure = names + ": news was lost";
  } else if (!second || !first) {
    pairs.failure = names + ": one makes the other one impossible";
  } else if (after(one, *second).digest() != after(two, *first).digest()) {
    pairs.failure = names + ": the order matters";
  }
}

// Tries each move that is needed with each one that is left out.
void try_pairs(const World& world, Pairs& pairs) {
  const std::vector<Move> all = moves_of(world);
  const std::vector<Move> needed = needed_moves(world, all);
  for (const Move& other : all) {
    const auto is_it = [&](const Move& move) { return move.name() == other.name(); };
    // A crash discards news, which need not have come.
    if (std::ranges::any_of(needed, is_it) || other.kind == MoveKind::kCrash) continue;
    for (const Move& move : needed) {
      if (pairs.failure.empty()) try_in_both_orders(world, move, other, pairs);
    }
  }
}

TEST(Search, MovesThatAreLeftOutCommuteWithThoseThatAreNeeded) {
  const sim::Mutation none;
  for (const SearchOptions& options :
       {SearchOptions{.faults = 0}, SearchOptions{.faults = 1, .states_max = 6000},
        SearchOptions{.faults = 2, .states_max = 3000}}) {
    Pairs pairs;
    SearchOptions with_pairs = options;
    with_pairs.on_state = [&](const World& world) { try_pairs(world, pairs); };
    search(none, with_pairs);
    EXPECT_EQ(pairs.failure, "") << options.faults << " faults";
    EXPECT_GE(pairs.tried, 100) << options.faults << " faults";
  }
}

// So there is no move for a watch of the job that has lost its place.
TEST(Search, AListOfTheJobBringsWhatTheEventsWouldThatItReplaces) {
  const sim::Mutation none;
  int64_t lists = 0;
  std::string differs;
  SearchOptions options{.faults = 1, .states_max = 20'000, .is_exhaustive = true};
  options.on_state = [&](const World& world) {
    if (world.process.coming_jobs.empty()) return;
    ++lists;
    World told = world;
    while (!told.process.coming_jobs.empty()) apply(told, {.kind = MoveKind::kJobEvent});
    World listed = world;
    listed.process.coming_jobs.clear();
    listed.process.lists_jobs = true;
    apply(listed, {.kind = MoveKind::kListJobs});
    if (told.digest() != listed.digest()) differs += std::to_string(lists) + " ";
  };
  search(none, options);
  EXPECT_EQ(differs, "");
  EXPECT_GE(lists, 500);
}

using Next = std::vector<std::pair<uint64_t, std::string>>;

// Returns the digests of the states that moves lead to, with the names of these moves.
Next next_of(const World& world) {
  Next next;
  for (const Move& move : moves_of(world)) {
    next.emplace_back(after(world, move).digest(), move.name());
  }
  std::ranges::sort(next);
  return next;
}

std::string difference(const Next& a, const Next& b) {
  std::string text;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const bool is_same = i < a.size() && i < b.size() && a[i].first == b[i].first;
    if (is_same) continue;
    text += (i < a.size() ? a[i].second : "nothing") + " / ";
    text += (i < b.size() ? b[i].second : "nothing") + "\n";
  }
  return text;
}

TEST(Search, StatesWithTheSameDigestHaveTheSameNextOnes) {
  const sim::Mutation none;
  for (const SearchOptions& options :
       {SearchOptions{.faults = 0}, SearchOptions{.faults = 1, .states_max = 10'000}}) {
    std::map<uint64_t, Next> known;
    int64_t again = 0;
    std::string differs;
    SearchOptions exhaustive = options;
    exhaustive.is_exhaustive = true;
    exhaustive.on_state = [&](const World& world) {
      const auto [place, is_new] = known.try_emplace(world.digest(), next_of(world));
      if (is_new) return;
      ++again;
      if (differs.empty()) differs = difference(place->second, next_of(world));
    };
    search(none, exhaustive);
    EXPECT_EQ(differs, "") << options.faults << " faults";
    EXPECT_GE(again, 200) << options.faults << " faults";
  }
}

struct Reached {
  std::set<uint64_t> all{};
  std::set<uint64_t> ends{};  // nothing more happens there
};

Reached reach(bool is_exhaustive) {
  const sim::Mutation none;
  Reached reached;
  search(none, {.faults = 0, .is_exhaustive = is_exhaustive, .on_state = [&](const World& world) {
                  reached.all.insert(world.digest());
                  const std::vector<Move> moves = moves_of(world);
                  const auto is_wake = [](const Move& move) {
                    return move.kind == MoveKind::kWake;
                  };
                  if (std::ranges::all_of(moves, is_wake)) reached.ends.insert(world.digest());
                }});
  return reached;
}

TEST(Search, LeavesOutNoStateInWhichEverythingRests) {
  const Reached every = reach(true);
  const Reached reduced = reach(false);
  EXPECT_EQ(reduced.ends, every.ends);
  EXPECT_GE(every.ends.size(), 5u);
  EXPECT_TRUE(std::ranges::includes(every.all, reduced.all));
  EXPECT_LT(2 * reduced.all.size(), every.all.size());
}

TEST(Search, EveryOrderWithoutFaultsCompletesTheJob) {
  const sim::Mutation none;
  const SearchResult result = search(none, {.faults = 0});
  EXPECT_TRUE(result.is_complete);
  EXPECT_EQ(result.violation, "") << path_of(result);
  EXPECT_GE(result.states, 300u);
  EXPECT_GE(result.depth, 40u);
}

TEST(Search, EveryOrderWithOneFaultKeepsTheInvariants) {
  const sim::Mutation none;
  const bool is_slow = !std::string_view(LOCKSTEP_SANITIZERS).empty();
  const SearchResult result =
      search(none, {.faults = 1, .states_max = is_slow ? 50'000 : UINT64_MAX});
  EXPECT_EQ(result.violation, "") << path_of(result);
  if (is_slow) return;
  EXPECT_TRUE(result.is_complete);
  EXPECT_GE(result.states, 100'000u);
  for (size_t i = 0; i < kMoveKinds; ++i) {
    const Move move{.kind = static_cast<MoveKind>(i)};
    // An old report needs a second round, which needs a fault.
    EXPECT_EQ(result.of_kind[i] > 0, move.kind != MoveKind::kOldReport) << move.name();
  }
}

TEST(Search, PodsOfADeletedJobOnALostMachineHoldNothingUp) {
  const sim::Mutation none;
  World world = first_world(none, {.faults = 2});
  go_until(world, MoveKind::kLoseMachine, 2);
  make(world, MoveKind::kLoseMachine);
  make(world, MoveKind::kDeleteJob);
  for (std::vector<Move> moves = moves_of(world); !world.is_at_goal(); moves = moves_of(world)) {
    ASSERT_FALSE(moves.empty());
    ASSERT_FALSE(is_fault(moves.front().kind));
    apply(world, moves.front());
  }
  EXPECT_EQ(world.pods.size(), 1u);
}

TEST(Search, JobsThatWantDifferentThingsHaveDifferentDigests) {
  const sim::Mutation none;
  World suspended = first_world(none, {.faults = 1});
  World scaled = suspended;
  make(suspended, MoveKind::kSuspend);
  make(scaled, MoveKind::kScale);
  EXPECT_NE(suspended.digest(), scaled.digest());
}

// build/bin/explore has no such bound.
TEST(Search, OrdersWithTwoFaultsKeepTheInvariants) {
  const sim::Mutation none;
  const SearchResult result = search(none, {.faults = 2, .states_max = 50'000});
  EXPECT_EQ(result.violation, "") << path_of(result);
}

TEST(Search, AFairClusterCompletesTheJobWithoutARestart) {
  const sim::Mutation none;
  World world = first_world(none, {.faults = 0});
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
  World world = first_world(none, {.faults = 0});
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
