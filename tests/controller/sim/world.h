#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "tests/controller/sim/chance.h"
#include "tests/controller/sim/fake_store.h"
#include "tests/controller/sim/invariants.h"
#include "tests/controller/sim/nodes.h"
#include "tests/controller/sim/users.h"

namespace lockstep::sim {

bool is_write(loop::ApiVerb verb);

// A cluster in memory, without controllers: API server, garbage collector, kubelets, agents,
// workers, users. Deterministic from its seed. Time comes from the ManualClock.
class World {
 public:
  World(ManualClock& clock, uint64_t seed);

  Chance chance;
  FakeStore store;
  Nodes nodes;
  Invariants invariants;
  Users users;

  // Handles a request that has reached the server. May inject faults.
  loop::ApiReply serve(loop::ApiRequest request, std::string_view sender);
  // Returns the number of writes requested so far, not counting leases.
  int64_t attempts() const { return attempts_; }
  bool is_server_away() const { return chance.clock.now() < away_until_; }
  // Returns whether messages between controllers and that agent are being lost.
  bool is_partitioned(const loop::AgentAddress& agent);
  // Calls `changed` after every change of an object of that type, until `alive` expires.
  void subscribe(loop::ResourceType type, std::weak_ptr<bool> alive, std::function<void()> changed);
  // Stops all faults. Users undo their illegal edits.
  void calm_down();
  Json status_of(const std::string& job_key) const;

 private:
  struct Subscriber {
    loop::ResourceType type;
    std::weak_ptr<bool> alive;
    std::function<void()> changed;
  };

  std::optional<loop::ApiReply> refuse(const loop::ApiRequest& request);
  std::optional<loop::ApiReply> refuse_pod(const loop::ApiRequest& request);
  void write_before(const loop::ApiRequest& request);
  void changed(loop::ResourceType type, const FakeStore::Event& event);
  bool has_job(const std::string& uid) const;
  void collect_garbage(const std::string& job_uid);
  void shake();
  void start_partition();

  std::vector<Subscriber> subscribers_;
  int64_t attempts_ = 0;
  TimePoint away_until_{};
  TimePoint stormy_until_{};
  TimePoint partition_from_{};
  TimePoint partition_until_{};
  Duration partition_spread_{};                      // all agents are cut off within this time
  std::map<std::string, TimePoint> partitioned_at_;  // by address
};

}  // namespace lockstep::sim
