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

bool is_write(ApiVerb verb);

// A cluster in memory, without controllers: API server, garbage collector, kubelets, agents,
// workers, users. Deterministic from its seed. Time is the ManualClock's.
class World {
 public:
  World(ManualClock& clock, uint64_t seed);

  Chance chance;
  FakeStore store;
  Nodes nodes;
  Invariants invariants;
  Users users;

  // What the server does now with a request that has reached it, faults included.
  ApiReply serve(ApiRequest request, std::string_view sender);
  // Writes that were asked for, of all but leases.
  int64_t attempts() const { return attempts_; }
  bool is_server_away() const { return chance.clock.now() < away_until_; }
  // Nothing passes between any controller and that agent.
  bool is_cut_off(const AgentAddress& agent);
  // Whom to tell of changes of a kind of object, until `alive` is gone.
  void subscribe(ResourceType type, std::weak_ptr<bool> alive, std::function<void()> changed);
  // Nothing more goes wrong; users put right what they did.
  void calm_down();
  Json status_of(const std::string& job_key) const;

 private:
  struct Subscriber {
    ResourceType type;
    std::weak_ptr<bool> alive;
    std::function<void()> changed;
  };

  std::optional<ApiReply> refuse(const ApiRequest& request);
  std::optional<ApiReply> refuse_pod(const ApiRequest& request);
  void write_before(const ApiRequest& request);
  void changed(ResourceType type, const FakeStore::Event& event);
  bool has_job(const std::string& uid) const;
  void collect_garbage(const std::string& job_uid);
  void shake();
  void cut_off_agents();

  std::vector<Subscriber> subscribers_;
  int64_t attempts_ = 0;
  TimePoint away_until_{};
  TimePoint stormy_until_{};
  TimePoint cut_off_from_{};
  TimePoint cut_off_until_{};
  Duration cut_off_within_{};                    // each agent within so long of the first
  std::map<std::string, TimePoint> cut_off_at_;  // by address
};

}  // namespace lockstep::sim
