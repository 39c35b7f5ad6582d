#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "controller/loop/agent_client.h"
#include "controller/loop/api_client.h"
#include "controller/loop/timers.h"
#include "tests/controller/sim/fake_store.h"

namespace lockstep::sim {

// How likely each fault is, per opportunity.
struct Faults {
  double lost_request = 0;  // never arrives; the caller times out
  double lost_reply = 0;    // is carried out; the caller times out
  double server_error = 0;
  double conflict = 0;       // a status write meets somebody else's
  double watch_cut = 0;      // per delivery
  double watch_expired = 0;  // per reconnect: compaction came in between
  double repeat = 0;         // per reconnect: events that were delivered already come again
  double crash = 0;          // of the controller, after any write
  // Per tick (500 ms of simulated time) and node:
  double worker_death = 0;
  double pod_loss = 0;   // the pod is deleted by somebody
  double node_loss = 0;  // the agent falls silent, the pod stays and never finishes terminating
};

// A cluster in memory: API server, kubelets, agents, workers. Deterministic from its seed. Time is
// the ManualClock's; what happens by itself is in `timers`, which no controller owns.
class World {
 public:
  World(ManualClock& clock, uint64_t seed);

  FakeStore store;
  Timers timers;
  Random random;
  Faults faults;

  // Invariants that were broken, in words.
  std::vector<std::string> violations;
  int64_t failures_caused = 0;  // that a job could notice
  bool crash_wanted = false;
  bool is_quiet = false;  // nothing more goes wrong

  std::string add_job(const std::string& name, int64_t nodes, int64_t steps, int64_t max_restarts);
  Json status_of(const std::string& job_key);
  bool chance(double probability);
  Duration delay(Duration most);
  std::string now() const;
  // An agent to the controllers; nullptr where nobody answers at that address.
  struct Agent;
  Agent* agent_at(const std::string& ip);
  Result<AgentState> put(const std::string& ip, const Assignment& assignment);
  size_t live_pods() const;

 private:
  void tick();
  void run_kubelet();
  void start_pod(const std::string& key, Json& pod);
  void run_agents();
  void cause_failures();
  void kill_worker(Agent& agent);
  void fail_peers(const std::vector<Agent*>& agents);
  void train(const std::vector<Agent*>& agents);
  void end_agent(Agent& agent, int exit_code);
  void check_write(const ApiRequest& request, const Json* stored);
  void check_status(const std::string& key, const Json& before, const Json& after);
  void check_pod(const Json& pod);
  void touch(Agent& agent);

  ManualClock& clock_;
  std::map<std::string, std::unique_ptr<Agent>> agents_;          // by pod UID
  std::map<std::string, std::map<int64_t, std::string>> hashes_;  // by job UID: round -> hash
  std::map<std::string, int64_t> checkpoints_;                    // by job UID: step
  std::map<std::string, int64_t> steps_wanted_;                   // by job name
  std::map<std::string, std::set<std::pair<int64_t, std::string>>> completed_;  // by job UID
  int64_t ips_ = 0;
};

struct World::Agent {
  std::string pod_key;
  std::string pod_uid;
  std::string ip;
  bool is_silent = false;
  AgentState state;
  Assignment assignment;
  TimePoint assigned_at{};
  TimePoint failed_at{};
};

// One controller's connection to the world: with it, its answers die.
class Connection final : public ApiClient, public AgentClient {
 public:
  explicit Connection(World& world) : world_(world) {}

  void send(ApiRequest request, ApiClient::Done done) override;
  std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) override;
  void put_assignment(const AgentAddress& agent, const Assignment& assignment,
                      AgentClient::Done done) override;
  void poll_state(const AgentAddress& agent, int64_t since, Duration wait,
                  AgentClient::Done done) override;
  void forget(const AgentAddress&) override {}

 private:
  void answer(ApiClient::Done done, ApiReply reply);
  void poll(const std::string& ip, int64_t since, TimePoint until, AgentClient::Done done);

  World& world_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::sim
