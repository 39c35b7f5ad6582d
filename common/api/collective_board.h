#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// The last collective that a rank has entered and completed in one of its groups.
struct GroupActivity {
  uint64_t group = 0;     // an id, the same on all of the group's ranks; 0: the world
  int64_t size = 0;       // of the group
  std::string ranks;      // of the world, "0, 2, 4"; cut where it is long
  std::string operation;  // that was entered last, "all_reduce"; empty: none yet
  uint64_t entered = 0;   // its number
  uint64_t completed = 0;

  bool operator==(const GroupActivity&) const = default;
};

// For whom a rank waits: for all of these ranks of the world. Of more, the first ones that it
// found.
struct AwaitedRanks {
  static constexpr size_t kMost = 8;
  std::array<int32_t, kMost> ranks = {-1, -1, -1, -1, -1, -1, -1, -1};  // -1: no more

  bool empty() const { return ranks[0] < 0; }
  int first() const { return ranks[0]; }
  void add(int rank) {
    for (int32_t& one : ranks) {
      if (one == rank) return;
      if (one >= 0) continue;
      one = rank;
      return;
    }
  }
  bool operator==(const AwaitedRanks&) const = default;
};

// An operation in which the rank's program stands, and nothing has moved for a while.
struct RankWait {
  std::string operation;  // "all_reduce"
  uint64_t number = 0;    // of the collective in its group, or of the message between two ranks
  uint64_t group = 0;
  int64_t size = 0;
  std::string ranks;
  AwaitedRanks waits_for;
  int64_t since_nanoseconds = 0;  // when something last moved, on the machine's steady clock

  bool operator==(const RankWait&) const = default;
};

// What a rank's communicator tells of itself to whoever shares the memory: its groups, what it
// waits for, and a sign of life. One process writes (its threads one at a time, but for enter,
// complete and beat, which any thread may call beside them), any number of readers; no system call,
// and nothing that a writer killed in mid-write can block. The memory is of a fixed size: of more
// groups than it has room for, those that are idle make room for others, and the rest is left out.
class CollectiveBoard {
 public:
  static constexpr int kGroups = 24;
  struct Memory;
  static constexpr size_t kBytes = 2600;
  static constexpr int kNowhere = -1;

  // Zeroed memory, which outlives the board; aligned to 8.
  explicit CollectiveBoard(void* memory);

  // A place for the group, or kNowhere if all are taken.
  int add(const GroupActivity& group);
  void remove(int place);
  // `operation` lives for ever. Nothing for kNowhere.
  void enter(int place, const char* operation, uint64_t number);
  void complete(int place, uint64_t number);
  void tell_wait(const RankWait& wait);
  void end_wait();
  void beat();

  // The readers' side. What is being rewritten at the moment is left out.
  std::vector<GroupActivity> groups() const;
  std::optional<RankWait> wait() const;
  // Grows while the process lives, about once a second; 0: nobody beats.
  uint64_t beats() const;

 private:
  Memory* memory_;
};

}  // namespace lockstep
