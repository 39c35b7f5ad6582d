#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "controller/loop/agent_client.h"
#include "controller/loop/api_client.h"
#include "controller/loop/cached_object.h"
#include "controller/loop/timers.h"
#include "controller/plan/plan.h"

namespace lockstep::loop {

// The job that a plan belongs to.
struct JobContext {
  std::string key;  // namespace/name
  std::string namespace_;
  std::string name;
  std::string uid;
  std::vector<std::string> tokens;               // as in AgentAddress
  CachedObject document;                         // as the server stored it when the plan was made
  ApiPriority priority = ApiPriority::kRoutine;  // of everything that is not for display only
  std::weak_ptr<void> latest{};  // expires when a later plan writes the job's status
};

// Result of carrying out a plan.
struct Execution {
  bool ok = true;
  bool is_conflict = false;  // the job had changed, and the newer version is known now: plan again
  bool wrote_status = false;
  bool wrote_progress = false;  // of progress only
  std::string error{};
  Duration retry_after{0};
};

// Receives what answers reveal, for the caches.
class CacheUpdater {
 public:
  virtual ~CacheUpdater() = default;
  virtual void job_written(const SharedJson& job) = 0;
  virtual void job_read(const SharedJson& job) = 0;
  virtual void job_gone(const JobContext& job) = 0;
  virtual void pod_written(const SharedJson& pod) = 0;
  virtual void pod_read(const SharedJson& pod) = 0;
  virtual void pod_gone(const JobContext& job, const std::string& name, const std::string& uid) = 0;
  virtual void pod_absent(const JobContext& job, const std::string& name) = 0;
  // The server refused a pod; `reason` as in PodRefusal. At most once per plan.
  virtual void pod_refused(const JobContext& job, const std::string& reason,
                           const std::string& message) = 0;
  // The server failed to create a pod (or the Secret that it needs). The failure says nothing about
  // the pod: the server, or a webhook it calls, is in trouble. At most once per plan.
  virtual void create_failed(const JobContext& job, const std::string& message) = 0;
  // The server refused the job's status. Returns whether that is new.
  virtual bool status_refused(const JobContext& job) = 0;
  // The server was asked to check a pod for that generation of the job; `refusal` as in PodCheck.
  // If `is_answered` is false, the server was in trouble, which says nothing about the pod.
  virtual void pod_checked(const JobContext& job, int64_t generation, const std::string& refusal,
                           bool is_answered) = 0;
  // The job's NetworkPolicy was created or replaced.
  virtual void network_policy_written(const JobContext& job, const SharedJson& policy) = 0;
  virtual void network_policy_gone(const JobContext& job, const std::string& name,
                                   const std::string& uid) = 0;
  // The job's NetworkPolicy has changed since it was read; its watch will tell.
  virtual void network_policy_outdated(const JobContext& job) = 0;
  // The server refused a write of the job's NetworkPolicy. `reason` as in
  // NetworkPolicyView.
  virtual void network_policy_refused(const JobContext& job, const std::string& reason,
                                      const std::string& message) = 0;
  // The server failed at such a write, which says nothing about the policy.
  virtual void network_policy_failed(const JobContext& job, const std::string& message) = 0;
  virtual void pod_accepted(const JobContext& job) = 0;
  virtual void agent_reported(const JobContext& job, const std::string& pod_uid,
                              const AgentState& state) = 0;
};

// Carries out plans, any number at the same time, each for another job. Single-threaded.
// - Actions run in order. Neighbours of the same kind run in parallel, at most `side_by_side` at a
//   time: when one is answered, the next one starts (assignments: when all are). After the first
//   error no other one starts.
// - Events and progress-only writes are for display: they fail no plan, and no plan waits for them.
//   An event is sent once everything before it has succeeded. A progress-only write is dropped if a
//   later plan comes first.
// - A NetworkPolicy that the server refuses fails no plan either.
// - One pod is created first, then two for each that was created, so that a server that refuses
//   them is asked few times. No create waits for a pod to run, because the pods of a gang wait for
//   each other.
class Executor {
 public:
  struct Options {
    std::string instance;  // this process, for events
    size_t side_by_side = 64;
    std::function<void()> on_left_server{};  // called when plans_at_server() has dropped
  };

  Executor(ApiClient& api, AgentClient& agents, Timers& timers, Random& random,
           CacheUpdater& cache_updater, Options options);

  void run(JobContext job, std::vector<plan::Action> actions, std::function<void(Execution)> done);
  // Number of plans that wait for the API server now, not for agents.
  size_t plans_at_server() const { return plans_at_server_; }

 private:
  struct Run;
  using RunPtr = std::shared_ptr<Run>;

  void go_on(const RunPtr& run);
  static bool may_start(Run& run);
  void begin_group(Run& run);
  void enter_server(Run& run, bool is_in);
  // Carries out an action, once only: its body moves into the request.
  void start(const RunPtr& run, plan::Action& action);
  void finish_one(const RunPtr& run, Execution execution);

  void create_secret(const RunPtr& run, plan::CreateSecret& action);
  void create_pod(const RunPtr& run, const plan::CreatePod& action);
  void refuse_pod(const RunPtr& run, const char* reason, const ApiReply& reply);
  void note_failure(const RunPtr& run, const ApiReply& reply);
  void adopt_pod(const RunPtr& run, const std::string& name);
  void check_pod(const RunPtr& run, plan::CheckPod& action);
  void confirm_pod(const RunPtr& run, const plan::ConfirmPod& action);
  void learn_pod(const RunPtr& run, const std::string& name, const SharedJson& pod);
  void delete_pod(const RunPtr& run, const plan::DeletePod& action);
  void delete_job(const RunPtr& run, const plan::DeleteJob& action);
  void write_network_policy(const RunPtr& run, plan::WriteNetworkPolicy& action);
  void delete_network_policy(const RunPtr& run, const plan::DeleteNetworkPolicy& action);
  void note_policy_trouble(const RunPtr& run, const ApiReply& reply);
  void put_assignment(const RunPtr& run, const plan::PutAssignment& action);
  ApiRequest status_request(const JobContext& job, const plan::WriteStatus& action) const;
  void write_status(const RunPtr& run, const plan::WriteStatus& action);
  void write_progress(const RunPtr& run, const plan::WriteStatus& action);
  void reread_job(const RunPtr& run);
  void emit_event(const RunPtr& run, const plan::EmitEvent& action);

  ApiClient& api_;
  AgentClient& agents_;
  Timers& timers_;
  Random& random_;
  CacheUpdater& cache_updater_;
  Options options_;
  size_t plans_at_server_ = 0;
  size_t events_open_ = 0;  // sent and not answered
};

}  // namespace lockstep::loop
