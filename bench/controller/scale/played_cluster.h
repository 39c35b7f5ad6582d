#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "controller/kube/rate_limiter.h"
#include "controller/loop/agent_client.h"
#include "controller/loop/api_client.h"
#include "tests/controller/sim/fake_store.h"

namespace lockstep::bench {

struct PlayedOptions {
  Duration latency = std::chrono::milliseconds(5);    // each way, of the server and of agents
  Duration startup = std::chrono::milliseconds(500);  // of a pod
  Duration report_every = std::chrono::seconds(10);   // of an agent in training
  RateLimiter::Options rate{};
};

// A cluster without faults, in simulated time, as large as memory allows: an API server that stores
// and tells of changes, pods that run a moment after they were made, and agents whose ranks train
// as soon as all agents of their round were told of it. What the controller hears comes on `loop`,
// all else happens on `world`.
class PlayedCluster final : public ApiClient, public AgentClient {
 public:
  PlayedCluster(Timers& world, Timers& loop, PlayedOptions options);

  void add_job(const std::string& name, int64_t nodes);
  // A rank of the job dies.
  void fail_rank(const std::string& name, int64_t node_index);

  void send(ApiRequest request, ApiClient::Done done) override;
  std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) override;
  void put_assignment(const AgentAddress& agent,
                      const std::shared_ptr<const Assignment>& assignment, int64_t node_index,
                      AgentClient::Done done) override;
  void poll_state(const AgentAddress& agent, int64_t since, Duration wait,
                  AgentClient::Done done) override;
  void forget(const AgentAddress& agent) override;

  // Requests by what they were: "create pods", "update trainingjobs/status".
  const std::map<std::string, int64_t>& requests() const { return requests_; }
  const sim::FakeStore& store() const { return store_; }
  // Agents whose ranks train.
  size_t training() const { return training_; }

 private:
  struct Watching;
  struct Handle;
  struct Agent {
    AgentState state;
    std::string job;  // name
    AgentClient::Done waiting{};
    uint64_t poll = 0;  // the number of the open one
    bool reports = false;
  };

  void serve(const ApiRequest& request, ApiClient::Done done);
  void on_change(ResourceType type, const sim::FakeStore::Event& event);
  void tell(const std::shared_ptr<Watching>& watching);
  void run_pod(const std::string& key);
  void changed(Agent& agent);
  void begin_round(const Assignment& assignment);
  void report(const std::string& ip);
  void answer(AgentClient::Done done, Result<AgentState> state);

  Timers& world_;
  Timers& loop_;
  PlayedOptions options_;
  RateLimiter limiter_;
  sim::FakeStore store_;
  std::map<std::string, int64_t> requests_;
  std::vector<std::shared_ptr<Watching>> watches_;
  std::map<std::string, Agent> agents_;  // by IP
  // Of each job, by UID: who was told of its newest round.
  struct Round {
    int64_t number = 0;
    std::set<std::string> told;
  };
  std::map<std::string, Round> rounds_;
  size_t training_ = 0;
  int64_t ips_ = 0;
  uint64_t polls_ = 0;
};

}  // namespace lockstep::bench
