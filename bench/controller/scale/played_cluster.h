#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/controller/scale/played_objects.h"
#include "common/api/training_job.h"
#include "controller/kube/rate_limiter.h"
#include "controller/loop/agent_client.h"
#include "controller/loop/api_client.h"
#include "tests/controller/sim/fake_store.h"

namespace lockstep::bench {

struct PlayedOptions {
  Duration latency = std::chrono::milliseconds(5);    // each way, of server and agents
  Duration startup = std::chrono::milliseconds(500);  // from a pod's creation until it runs
  Duration report_every = std::chrono::seconds(10);   // from a published step to the next one
  bool agents_are_old = false;                        // they tell progress at once (StatePoll)
  Duration kubelet = std::chrono::seconds(1);       // from a pod's end until the kubelet reports it
  Duration peer_silence = std::chrono::seconds(5);  // until ranks give up a machine that stopped
  kube::RateLimiter::Options rate{};
};

struct PlayedJob {
  std::string name;
  int64_t nodes = 1;
  int64_t processes = 1;  // on each node
  Json pod_template = Json::object();
  std::optional<ElasticSpec> elastic{};
};

// How a job loses a node.
enum class Loss {
  kPodFails,      // its processes die; the kubelet reports the pod as Failed
  kPodGoes,       // its processes die, and its pod is removed
  kFallsSilent,   // no request to its agent is answered; its rank goes on
  kMachineStops,  // the same, and its rank stops, too; its peers notice that after `peer_silence`
};

// A simulated cluster, in simulated time, as large as memory allows. It and the controller exchange
// objects and reports as text, of the size that they have on a network, so that their memory is
// separate. It has
//  - an API server that stores objects and serves watches,
//  - pods that run shortly after they are created,
//  - agents whose ranks train as soon as all agents of their round have received it, and fail if
//    one of them dies.
// Its only faults are the ones that are asked for.
// Callbacks of the controller run on `loop`, everything else on `world`.
class PlayedCluster final : public loop::ApiClient, public loop::AgentClient {
 public:
  PlayedCluster(loop::Timers& world, loop::Timers& loop, PlayedOptions options);

  void add_job(PlayedJob job);
  // Kills the job's rank on this node.
  void fail_rank(const std::string& name, int64_t node_index);
  // All ranks of the job end well.
  void finish_job(const std::string& name);
  // Removes the job and its pods, as a user and the garbage collector would.
  void remove_job(const std::string& name);
  // The job loses the pod of this node.
  void lose_node(const std::string& name, int64_t node_index, Loss loss);

  void send(loop::ApiRequest request, loop::ApiClient::Done done) override;
  std::unique_ptr<loop::WatchHandle> watch(loop::WatchRequest request,
                                           loop::WatchHandler handler) override;
  void put_assignment(const loop::AgentAddress& agent,
                      const std::shared_ptr<const Assignment>& assignment, int64_t node_index,
                      loop::AgentClient::Done done) override;
  void poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll,
                  loop::AgentClient::Done done) override;
  void forget(const loop::AgentAddress& agent) override;

  // Number of requests by kind: "create pods", "update trainingjobs/status".
  const std::map<std::string, int64_t>& requests() const { return requests_; }
  // Number of assignments that agents have received.
  int64_t assignments() const { return assignments_; }
  // Number of answers of agents that had news.
  int64_t reports() const { return reports_; }
  const sim::FakeStore& store() const { return store_; }
  // Number of agents whose ranks train, or wait in a step for one whose machine stopped.
  size_t training() const { return training_; }
  // Returns when the controller received a report of the job's agents that it has not acted on, the
  // oldest one, and forgets it; nullopt if there is none.
  std::optional<TimePoint> take_report(const std::string& job);

 private:
  struct Watching;
  struct Handle;
  struct Agent {
    AgentState state;
    std::string job;  // name
    std::string pod;  // key
    std::optional<Loss> lost{};
    loop::AgentClient::Done waiting{};
    int64_t since = 0;              // of the open poll
    uint64_t poll = 0;              // number of the open poll
    int64_t beyond_progress = 1;    // sequence of the last change that was more than progress
    std::optional<TimePoint> at{};  // when it publishes its next step
  };

  void serve(const loop::ApiRequest& request, loop::ApiClient::Done done);
  void on_change(loop::ResourceType type, const sim::FakeStore::Event& event);
  void tell(const std::shared_ptr<Watching>& watching);
  void run_pod(const std::string& key);
  void changed(Agent& agent);
  void begin_round(const Assignment& assignment);
  void accept_poll(const std::string& ip, const loop::StatePoll& poll,
                   loop::AgentClient::Done done);
  void publish(Agent& agent);
  static bool trains(const Agent& agent);
  void stop_training(Agent& agent);
  void end_pod(const std::string& pod, const char* phase, int64_t exit_code);
  Agent* find_agent(const std::string& name, int64_t node_index);
  void fail_worker(Agent& agent);
  void fail_peers(const Agent& lost);
  // Answers a request to an agent that is lost.
  void refuse(const Agent& agent, loop::AgentClient::Done done);
  void answer(loop::AgentClient::Done done, const Error& error);
  void answer(const Agent& agent, int64_t since, loop::AgentClient::Done done);

  loop::Timers& world_;
  loop::Timers& loop_;
  PlayedOptions options_;
  kube::RateLimiter limiter_;
  sim::FakeStore store_;
  PodTemplates templates_;
  std::map<std::string, int64_t> requests_;
  std::vector<std::shared_ptr<Watching>> watches_;
  std::map<std::string, Agent> agents_;                         // by IP
  std::map<std::string, std::vector<std::string>> ips_of_job_;  // by its name
  // A job's newest round, and the agents (by IP) that have received it.
  struct Round {
    int64_t number = 0;
    std::set<std::string> told;
    bool is_broken = false;  // it has lost a node
  };
  std::map<std::string, Round> rounds_;        // by job UID
  std::map<std::string, TimePoint> reported_;  // by job name
  size_t training_ = 0;
  int64_t assignments_ = 0;
  int64_t reports_ = 0;
  int64_t ips_ = 0;
  uint64_t polls_ = 0;
  uint64_t spread_ = 0;
};

}  // namespace lockstep::bench
