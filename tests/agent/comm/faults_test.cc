// Kills or stops ranks, and cuts links, at random points of random schedules. Round after round,
// the survivors name the culprit and form the next world, and nothing is left behind.
// LOCKSTEP_FAULT_ROUNDS=N runs N rounds of each kind of fault (a twentieth of that for faults that
// cost a time limit). LOCKSTEP_FAULT_SEED=S begins with another seed.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "common/base/random.h"
#include "controller/plan/stuck.h"
#include "tests/agent/comm/fault_world.h"
#include "tests/agent/comm/namespaces.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FaultReport;
using test::FaultWorld;
using test::Namespaces;

constexpr int kRanks = 4;

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}
uint64_t first_seed() {
  return number_of("LOCKSTEP_FAULT_SEED", 1);
}
uint64_t rounds(uint64_t in_tests) {
  return number_of("LOCKSTEP_FAULT_ROUNDS", in_tests);
}
uint64_t slow_rounds(uint64_t in_tests) {
  return std::max<uint64_t>(1, number_of("LOCKSTEP_FAULT_ROUNDS", 20 * in_tests) / 20);
}

template <class Condition>
bool eventually(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::usleep(100);
  }
  return true;
}

// Shared memory between all, TCP between all, or two hosts.
std::vector<int> nodes_of(uint64_t kind) {
  switch (kind) {
    case 0:
      return {0, 0, 0, 0};
    case 1:
      return {0, 1, 2, 3};
    case 2:
      return {0, 0, 1, 1};
    default:
      return {0, 1, 0, 1};
  }
}
std::string text_of(const std::vector<int>& nodes) {
  std::string text;
  for (const int node : nodes) text += std::to_string(node);
  return text;
}

int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// How long survivors took to find out, printed for the reader of the output.
class Delays {
 public:
  void add(int64_t nanoseconds) { all_.push_back(static_cast<double>(nanoseconds) * 1e-6); }
  void print(const char* what) {
    if (all_.empty()) return;
    std::sort(all_.begin(), all_.end());
    std::printf("%s: %zu errors after %.2f ms (median), %.2f (99 of 100), %.2f (most)\n", what,
                all_.size(), all_[all_.size() / 2], all_[all_.size() * 99 / 100], all_.back());
  }

 private:
  std::vector<double> all_;
};

// The end of a process is reported, not inferred from silence: it takes far less than the limit of
// 60 s.
constexpr Duration kKnownWithin = seconds(5);

// Nothing of the round remains in the process. Memory that the heap keeps does not grow with the
// rounds.
void expect_nothing_left(const FaultReport& report) {
  constexpr int64_t kHeapBytesMax = 1 << 20;
  EXPECT_EQ(report.descriptors, 0);
  EXPECT_EQ(report.threads, 0);
  EXPECT_EQ(report.mappings, 0);
  EXPECT_LT(report.heap_bytes, kHeapBytesMax);
}

// Waits for the moment of the fault: after some steps of the rank, and some microseconds into its
// next one.
bool wait_for_moment(const FaultWorld& world, int rank, Random& random) {
  const uint64_t steps = 1 + random.below(6);
  const bool came = eventually([&] { return world.steps(rank) >= steps; });
  ::usleep(static_cast<useconds_t>(random.below(3000)));
  return came;
}

// Finds the culprit from the boards of all ranks alone, as agents and controller do.
class Boards {
 public:
  explicit Boards(const FaultWorld& world) : world_(world) {}

  // Looks at all boards. The beats since the previous look show who is alive.
  void look() {
    states_.assign(static_cast<size_t>(world_.size()), {});
    beats_before_ = std::exchange(beats_, {});
    for (int rank = 0; rank < world_.size(); ++rank) {
      const CollectiveBoard& board = world_.board(rank);
      WorkerState& state = states_[static_cast<size_t>(rank)];
      beats_.push_back(board.beats());
      state.running = true;
      state.is_lifeless =
          !beats_before_.empty() && beats_.back() == beats_before_[static_cast<size_t>(rank)];
      if (const auto wait = board.wait()) {
        state.wait =
            WorkerWait{.operation = wait->operation + " #" + std::to_string(wait->number),
                       .ranks = wait->ranks,
                       .group_size = wait->size,
                       .waits_for = {},
                       .seconds = static_cast<double>(now() - wait->since_nanoseconds) * 1e-9};
        for (const int awaited : wait->waits_for.ranks) {
          if (awaited >= 0) state.wait->waits_for.push_back(awaited);
        }
      }
    }
  }
  std::optional<plan::StuckRank> stuck() const { return plan::find_stuck(ranks()); }
  std::string text() const {
    const auto found = stuck();
    std::string text =
        found ? plan::stuck_text(*found, {.ranks = ranks(), .node = ""}) : "nobody is stuck";
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      const WorkerState& state = states_[rank];
      text += "\nrank " + std::to_string(rank) + (state.is_lifeless ? ", lifeless" : "");
      text += state.wait ? " waits in " + state.wait->operation + " for" : " waits for nobody";
      if (!state.wait) continue;
      for (const int64_t awaited : state.wait->waits_for) text += " " + std::to_string(awaited);
    }
    return text;
  }
  bool all_others_wait(int victim) const {
    const auto found = stuck();
    return found && found->rank == victim && found->waiting.size() == states_.size() - 1;
  }

 private:
  plan::RankStates ranks() const {
    plan::RankStates all;
    for (const WorkerState& state : states_) all.push_back(&state);
    return all;
  }

  const FaultWorld& world_;
  std::vector<WorkerState> states_;
  std::vector<uint64_t> beats_;
  std::vector<uint64_t> beats_before_;
};

std::string on_loopback(int node) {
  return "127.0.0." + std::to_string(2 + node);
}

TEST(Faults, SurvivorsOfAKilledRankNameItAndFormTheNextWorldAndNothingIsLeft) {
  FaultWorld world({.size = kRanks, .host_of = on_loopback});
  Delays delays;
  const uint64_t first = first_seed();
  for (uint64_t seed = first; seed < first + rounds(12); ++seed) {
    Random random(seed, 1);
    const auto nodes = nodes_of(random.below(4));
    const int victim = static_cast<int>(random.below(kRanks));
    const test::Limits limits{.has_small_frames = seed % 2 == 0, .lends = seed % 3 != 0};
    SCOPED_TRACE("seed " + std::to_string(seed) + ", hosts " + text_of(nodes) + ", rank " +
                 std::to_string(victim) + " is killed");
    ASSERT_TRUE(
        world.begin({.nodes = nodes, .seed = seed, .limit = seconds(60), .limits = limits}));
    ASSERT_TRUE(wait_for_moment(world, victim, random));
    const int64_t killed_at = now();
    world.send_signal(victim, SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const FaultReport report = world.report(rank);
      ASSERT_TRUE(report.heard) << "rank " << rank;
      EXPECT_EQ(report.suspect, victim) << report.message;
      EXPECT_EQ(report.code, static_cast<int>(Code::kUnavailable)) << report.message;
      expect_nothing_left(report);
      delays.add(report.at_nanoseconds - killed_at);
      EXPECT_LT(report.at_nanoseconds - killed_at, kKnownWithin.count()) << "rank " << rank;
    }
    // Its board shows its last actions, whenever it was killed.
    EXPECT_FALSE(world.board(victim).groups().empty());
    world.replace(victim);
    if (HasFailure()) return;
  }
  delays.print("killed");
}

TEST(Faults, AStoppedRankIsTheOneWhoIsMissingByAllBoardsAndIsNamedAfterTheTimeLimit) {
  FaultWorld world({.size = kRanks, .host_of = on_loopback});
  Delays delays;
  const uint64_t first = first_seed();
  for (uint64_t seed = first; seed < first + slow_rounds(4); ++seed) {
    Random random(seed, 2);
    const auto nodes = nodes_of(random.below(4));
    const int victim = static_cast<int>(random.below(kRanks));
    const test::Limits limits{.has_small_frames = seed % 2 == 0, .lends = seed % 3 != 0};
    SCOPED_TRACE("seed " + std::to_string(seed) + ", hosts " + text_of(nodes) + ", rank " +
                 std::to_string(victim) + " is stopped");
    ASSERT_TRUE(world.begin({.nodes = nodes, .seed = seed, .limit = seconds(2), .limits = limits}));
    ASSERT_TRUE(wait_for_moment(world, victim, random));
    const int64_t stopped_at = now();
    world.send_signal(victim, SIGSTOP);
    // Before the others give up; a heartbeat comes every quarter of a second.
    Boards boards(world);
    bool named = false;
    for (int looks = 0; looks < 4 && !named; ++looks) {
      boards.look();
      named = boards.all_others_wait(victim);
      if (!named) ::usleep(400'000);
    }
    EXPECT_TRUE(named) << boards.text();
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const FaultReport report = world.report(rank);
      ASSERT_TRUE(report.heard) << "rank " << rank;
      EXPECT_EQ(report.suspect, victim) << report.message;
      EXPECT_EQ(report.code, static_cast<int>(Code::kTimeout)) << report.message;
      expect_nothing_left(report);
      delays.add(report.at_nanoseconds - stopped_at);
    }
    world.replace(victim);
    if (HasFailure()) return;
  }
  delays.print("stopped, with a limit of 2 s");
}

TEST(Faults, BehindACutLinkTheOtherHostsRanksAreNamedAndAfterItsMendingTheNextWorldForms) {
  auto network = Namespaces::create({.hosts = 2, .delay = std::chrono::microseconds(50)});
  if (!network.ok()) GTEST_SKIP() << network.error().message;
  const std::vector<int> nodes = nodes_of(2);
  FaultWorld world({.size = kRanks, .host_of = Namespaces::address, .prepare = [&](int rank) {
                      if (!(*network)->enter(rank / 2).ok()) std::exit(3);
                    }});
  Delays delays;
  const uint64_t first = first_seed();
  for (uint64_t seed = first; seed < first + slow_rounds(3); ++seed) {
    Random random(seed, 3);
    const int cut = static_cast<int>(random.below(2));
    SCOPED_TRACE("seed " + std::to_string(seed) + ", host " + std::to_string(cut) + " is cut off");
    ASSERT_TRUE(world.begin({.nodes = nodes,
                             .seed = seed,
                             .limit = seconds(2),
                             .limits = {.has_small_frames = seed % 2 == 0}}));
    ASSERT_TRUE(wait_for_moment(world, static_cast<int>(random.below(kRanks)), random));
    const int64_t cut_at = now();
    (*network)->cut(cut);
    for (int rank = 0; rank < kRanks; ++rank) {
      const FaultReport report = world.report(rank);
      ASSERT_TRUE(report.heard) << "rank " << rank;
      EXPECT_EQ(report.code, static_cast<int>(Code::kTimeout)) << report.message;
      EXPECT_EQ(report.suspect / 2, 1 - rank / 2) << "rank " << rank << ": " << report.message;
      expect_nothing_left(report);
      delays.add(report.at_nanoseconds - cut_at);
    }
    (*network)->mend(cut);
    if (HasFailure()) return;
  }
  delays.print("cut off, with a limit of 2 s");
}

}  // namespace
}  // namespace lockstep::comm
