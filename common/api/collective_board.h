#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// The last collectives that a rank entered and completed in one of its groups.
struct GroupActivity {
  uint64_t group = 0;     // id, the same on all of the group's ranks; 0: the world
  int64_t size = 0;       // number of ranks
  std::string ranks;      // world ranks, "0, 2, 4"; truncated if long
  std::string operation;  // entered last, "all_reduce"; empty: none yet
  uint64_t entered = 0;   // number of the collective entered last
  uint64_t completed = 0;

  bool operator==(const GroupActivity&) const = default;
};

// The world ranks that a rank waits for: all of these. If there are more than kRanksMax, the first
// ones found.
struct AwaitedRanks {
  static constexpr size_t kRanksMax = 8;
  std::array<int32_t, kRanksMax> ranks = {-1, -1, -1, -1, -1, -1, -1, -1};  // -1: unused

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

// An operation in which the rank has made no progress for a while.
struct RankWait {
  std::string operation;  // "all_reduce"
  uint64_t number = 0;    // of the collective in its group, or of the message between two ranks
  uint64_t group = 0;
  int64_t size = 0;
  std::string ranks;
  AwaitedRanks waits_for;
  int64_t since_nanoseconds = 0;  // when progress was last made, on the machine's steady clock

  bool operator==(const RankWait&) const = default;
};

// Publishes the state of a rank's communicator in shared memory: its groups, what it waits for, and
// a heartbeat. One process writes, from one thread at a time; enter, complete and beat may also be
// called concurrently from any thread. Any number of readers. No system calls, and a writer killed
// in mid-write blocks nobody. The memory has a fixed size: groups that do not fit are left out, and
// idle groups make room for others.
class CollectiveBoard {
 public:
  static constexpr int kGroups = 24;
  struct Memory;
  static constexpr size_t kBytes = 2600;
  static constexpr int kNowhere = -1;

  // `memory` is kBytes of zeroed memory, aligned to 8, that outlives the board.
  explicit CollectiveBoard(void* memory);

  // Returns a slot for the group, or kNowhere if all are in use.
  int add(const GroupActivity& group);
  void remove(int place);
  // `operation` must have static lifetime. No-op for kNowhere.
  void enter(int place, const char* operation, uint64_t number);
  void complete(int place, uint64_t number);
  void set_wait(const RankWait& wait);
  void clear_wait();
  void beat();
  // The writer forgets that it lived: no heartbeat yet.
  void clear_beats();

  // Readers' side. Records that are being written are left out.
  std::vector<GroupActivity> groups() const;
  std::optional<RankWait> wait() const;
  // Grows about once a second while the process lives; 0: no heartbeat yet.
  uint64_t beats() const;

 private:
  Memory* memory_;
};

}  // namespace lockstep
