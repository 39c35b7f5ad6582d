#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/controller/sim/simulation.h"
#include "tests/controller/sim/users.h"

namespace lockstep::sim {

// An operation on a job, done once `when` holds.
struct LifeStep {
  std::function<bool(const Simulation&)> when;
  std::function<void(Simulation&)> act;
};

// The life of a job, "default/job", from its creation to its end. Nothing but `steps` happens to
// it.
struct Life {
  std::string name;
  JobOptions job{};
  std::vector<LifeStep> steps{};
  bool is_deleted = false;  // it ends by being deleted
};
std::vector<Life> all_lives();

// Mistreatment of the controller in a life.
struct Mishap {
  int64_t crash_after = 0;    // the controller dies after its n-th write; 0: never
  bool is_stale = false;      // its watches lag by up to a minute, all the time
  int64_t dropped_batch = 0;  // the n-th batch of events is never delivered (410); 0: none
};

struct LifeResult {
  std::string end{};      // how the job and its pods look in the end
  std::string details{};  // members and ended pods
  int64_t restarts = 0;
  int64_t writes = 0;       // of the controller
  int64_t batches = 0;      // of events that its watches delivered
  std::string violation{};  // of an invariant, or the life has not ended
};

LifeResult live(const Life& life, const Mishap& mishap);

struct LivesResult {
  int64_t lives = 0;
  std::vector<std::string> failed{};
};

// Lives each life once without mishaps, then with a crash after each of its writes, combined with
// stale and fresh caches and with each dropped batch. Each must end as the first one did:
// - A job that was not restarted is not. One that lost a rank or a pod may be restarted once more
//   if caches are stale or a batch was dropped, because the loss of a pod may be seen after what
//   it did to the others.
// - With fresh caches and all events, members and ended pods are the same too.
// Takes every `stride`-th combination, from `first` on.
LivesResult live_all(const std::vector<Life>& lives, int64_t first, int64_t stride,
                     const std::function<void(const LivesResult&)>& on_progress = {});

// Returns how the job and its live pods look, without versions, times and messages.
std::string looks(const Simulation& simulation, const std::string& key);

}  // namespace lockstep::sim
