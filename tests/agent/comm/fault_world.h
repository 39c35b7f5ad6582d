#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "common/api/collective_board.h"
#include "common/base/clock.h"
#include "tests/agent/comm/small_frames.h"

namespace lockstep::test {

// A rank's report on a round that it has left with an error.
struct FaultReport {
  bool heard = false;  // false: it ended, or was silent for a minute
  int code = 0;        // Code; -1: its results were wrong
  int suspect = -1;
  int64_t at_nanoseconds = 0;  // of the error, on the steady clock
  char message[240] = {};
  // Resources that remain after the communicator and its groups are gone, relative to those before
  // the process's first round.
  int descriptors = 0;
  int threads = 0;
  int mappings = 0;        // of shared memory
  int64_t heap_bytes = 0;  // in use
};

// Processes that form a world and work in it, by a schedule drawn from a seed, until something
// fails. Then they form the next world, round after round. A new process replaces a killed rank.
// Each rank has a board that this process reads, as an agent does.
class FaultWorld {
 public:
  static constexpr int kRanksMax = 8;
  struct Options {
    int size = 4;
    std::string (*host_of)(int node) = nullptr;  // address on which ranks of a node listen
    std::function<void(int rank)> prepare;       // called first in a rank's process
  };
  explicit FaultWorld(Options options);
  ~FaultWorld();
  FaultWorld(const FaultWorld&) = delete;
  FaultWorld& operator=(const FaultWorld&) = delete;

  struct Round {
    std::vector<int> nodes;  // by rank; those of one node share memory
    uint64_t seed = 0;       // of the schedule
    Duration limit{};        // of silence
    Limits limits;
  };
  // Begins the next round; returns false if a rank does not answer.
  bool begin(const Round& round);
  // Returns how many steps the rank has finished in this round.
  uint64_t steps(int rank) const;
  void send_signal(int rank, int signal) const;
  const CollectiveBoard& board(int rank) const { return boards_[static_cast<size_t>(rank)]; }
  // Waits for the rank's report of the round.
  FaultReport report(int rank) const;
  // Kills the rank's process, whatever it is doing, and starts another one.
  void replace(int rank);
  int size() const { return options_.size; }

 private:
  struct Shared;
  struct Rank {
    pid_t pid = -1;
    int pipe = -1;  // in both directions
  };
  void start(int rank);
  void end(int rank);
  [[noreturn]] void serve(int rank, int pipe) const;

  Options options_;
  uint64_t round_ = 0;
  Shared* shared_ = nullptr;
  std::vector<CollectiveBoard> boards_;
  std::vector<Rank> ranks_;
  std::vector<int> memory_;  // of the round
};

}  // namespace lockstep::test
