#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/random.h"
#include "controller/loop/agent_client.h"
#include "controller/loop/api_client.h"
#include "controller/loop/timers.h"
#include "controller/plan/plan.h"

namespace lockstep {

// Whose plan it is.
struct JobContext {
  std::string key;  // namespace/name
  std::string namespace_;
  std::string name;
  std::string uid;
  std::string token;
  SharedJson document;                           // as the server stored it, when the plan was made
  ApiPriority priority = ApiPriority::kRoutine;  // of what isn't for display alone
  std::weak_ptr<void> latest{};  // expires when a later plan writes the job's status
};

// What came of a plan.
struct Execution {
  bool ok = true;
  bool is_conflict = false;  // the job had changed; the newer one has been learnt: plan again
  bool wrote_status = false;
  bool wrote_progress = false;  // and mere numbers
  std::string error{};
  Duration retry_after{0};
};

// What answers taught, for the caches.
class Knowledge {
 public:
  virtual ~Knowledge() = default;
  virtual void job_written(const SharedJson& job) = 0;
  virtual void job_read(const SharedJson& job) = 0;
  virtual void job_gone(const JobContext& job) = 0;
  virtual void pod_written(const SharedJson& pod) = 0;
  virtual void pod_read(const SharedJson& pod) = 0;
  virtual void pod_gone(const JobContext& job, const std::string& name, const std::string& uid) = 0;
  virtual void pod_absent(const JobContext& job, const std::string& name) = 0;
  // The server would not take a pod; `reason` as in PodRefusal. At most once a plan.
  virtual void pod_refused(const JobContext& job, const std::string& reason,
                           const std::string& message) = 0;
  // The server could not make a pod (or the Secret that it needs), which says nothing of the pod:
  // it, or a webhook that it asks, is in trouble. At most once a plan.
  virtual void create_failed(const JobContext& job, const std::string& message) = 0;
  // The server would not take the job's status; whether that is new.
  virtual bool status_refused(const JobContext& job) = 0;
  // The server was asked to check a pod of that generation of the job; `refusal` as in PodCheck.
  // Not answered: it was in trouble, which says nothing of the pod.
  virtual void pod_checked(const JobContext& job, int64_t generation, const std::string& refusal,
                           bool is_answered) = 0;
  virtual void pod_taken(const JobContext& job) = 0;
  virtual void agent_said(const JobContext& job, const std::string& pod_uid,
                          const AgentState& state) = 0;
};

// Carries out one plan: its actions in their order, neighbours of the same kind side by side; the
// first error ends it. What is for display alone, events and mere numbers of progress, ends no plan
// and is waited for by none: an event goes out when all before it has succeeded, numbers unless a
// later plan comes first. Pods are sent by one, then two, four, ... at a time, so that a server
// that refuses them is asked few times. Any number of plans at once, each of another job.
// Single-threaded.
class Executor {
 public:
  struct Options {
    std::string instance;  // this process, for events
    size_t side_by_side = 64;
    std::function<void()> on_left_server{};  // plans_at_server() became smaller
  };

  Executor(ApiClient& api, AgentClient& agents, Timers& timers, Random& random,
           Knowledge& knowledge, Options options);

  void run(JobContext job, std::vector<Action> actions, std::function<void(Execution)> done);
  // Plans that wait for answers of the API server just now, rather than for agents.
  size_t plans_at_server() const { return plans_at_server_; }

 private:
  struct Run;
  using RunPtr = std::shared_ptr<Run>;

  void next_group(const RunPtr& run);
  void enter_server(Run& run, bool is_in);
  // An action is carried out once: what it brings along goes out with its request.
  void start(const RunPtr& run, Action& action);
  void finish_one(const RunPtr& run, Execution execution);

  void create_secret(const RunPtr& run, CreateSecret& action);
  void create_pod(const RunPtr& run, CreatePod& action);
  void refuse_pod(const RunPtr& run, const char* reason, const ApiReply& reply);
  void note_failure(const RunPtr& run, const ApiReply& reply);
  void adopt_pod(const RunPtr& run, const std::string& name);
  void check_pod(const RunPtr& run, CheckPod& action);
  void confirm_pod(const RunPtr& run, const ConfirmPod& action);
  void learn_pod(const RunPtr& run, const std::string& name, const SharedJson& pod);
  void delete_pod(const RunPtr& run, const DeletePod& action);
  void delete_job(const RunPtr& run, const DeleteJob& action);
  void put_assignment(const RunPtr& run, const PutAssignment& action);
  ApiRequest status_request(const JobContext& job, const WriteStatus& action) const;
  void write_status(const RunPtr& run, const WriteStatus& action);
  void write_progress(const RunPtr& run, const WriteStatus& action);
  void reread_job(const RunPtr& run);
  void emit_event(const RunPtr& run, const EmitEvent& action);

  ApiClient& api_;
  AgentClient& agents_;
  Timers& timers_;
  Random& random_;
  Knowledge& knowledge_;
  Options options_;
  size_t plans_at_server_ = 0;
  size_t events_open_ = 0;  // sent and not answered
};

}  // namespace lockstep
