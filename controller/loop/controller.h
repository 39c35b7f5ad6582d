#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/base/random.h"
#include "controller/loop/accepted_pods.h"
#include "controller/loop/agent_client.h"
#include "controller/loop/agent_watchers.h"
#include "controller/loop/api_client.h"
#include "controller/loop/executor.h"
#include "controller/loop/fence.h"
#include "controller/loop/informer.h"
#include "controller/loop/leader_election.h"
#include "controller/loop/metrics.h"
#include "controller/loop/progress_budget.h"
#include "controller/loop/timers.h"
#include "controller/loop/work_queue.h"
#include "controller/plan/plan.h"

namespace lockstep {

using PlanFunction = std::function<Plan(const Observed&, TimePoint now, const Limits&)>;

struct ControllerOptions {
  std::string namespace_{};  // of the jobs; empty: all
  std::string key{};         // secret: job tokens are HMAC-SHA256 of it and the job's UID
  std::string identity = "lockstep-controller";
  PlanFunction plan = lockstep::plan;
  Limits limits{};
  std::optional<LeaseOptions> lease{};  // none: this is the only replica
  ProgressBudget::Options progress{};
  WorkQueueOptions queue{};
  InformerOptions informer{};  // type, namespace and selector are set by the controller
  AgentWatchOptions agents{};
  // While so many plans wait for the API server, only those of urgent jobs are begun: the others
  // wait in the queue, where they are in order and passed by urgent ones, rather than for the rate
  // limit.
  size_t plans_at_server_max = 32;
  // After a plan that acted, the job is looked at again, should the change it caused not be seen.
  Duration recheck = std::chrono::seconds(20);
  // After a pod that the server refused, doubling, until the next one is sent, or checked.
  Duration refusal_first = std::chrono::seconds(1);
  Duration refusal_max = std::chrono::seconds(60);
};

// The whole controller but for its I/O: caches fed by watches, a queue of jobs, one plan at a time
// for each, carried out. Everything happens on the thread that calls start(), runs the timers and
// delivers the clients' answers. References are kept and must outlive it.
class Controller final : private Knowledge {
 public:
  // `on_lost`: another replica leads now; the process is to end.
  Controller(ApiClient& api, AgentClient& agents, Timers& timers, Random& random,
             ControllerOptions options, std::function<void()> on_lost);
  ~Controller() override;

  void start();
  // Makes no more plans, and gives the lease back once its writes on their way are answered; what
  // waits for its turn is not sent any more.
  void stop(std::function<void()> done);

  bool is_leading() const { return leads_; }
  bool synced() const { return jobs_.synced() && pods_.synced(); }

  // For metrics. Those of jobs and reconciles are of the time that this process led.
  const WorkQueue& queue() const { return queue_; }
  const ReconcileMetrics& reconcile_metrics() const { return reconcile_metrics_; }
  const JobMetrics& job_metrics() const { return job_metrics_; }
  const Informer& jobs() const { return jobs_; }
  // Every job that this process has looked at and that is still there, as last read.
  void visit_jobs(const std::function<void(const TrainingJob&)>& visit) const;
  const Informer& pods() const { return pods_; }
  size_t plans_at_server_max() const { return options_.plans_at_server_max; }
  size_t agents_watched() const { return watchers_.agents(); }

 private:
  struct Memory {  // of one job, by its UID
    std::string
        version;  // resourceVersion of the document that `job` and `problems` were read from
    TrainingJob job;
    Problems problems;
    Problems spec_problems;
    std::string token;
    std::set<std::string> absent_pods;
    std::optional<PodRefusal> refusal;
    int64_t refused_generation = 0;  // of the job, for which it holds
    int refusals = 0;                // in a row
    int creates_failed = 0;          // in a row
    std::string version_refused;     // of the document whose status the server would not take
    std::optional<PodCheck> pod_check;
    int64_t checked_generation = 0;  // of the job, for which it holds
    int checks_refused = 0;          // in a row
    std::string likeness;            // of the pod that was last to be checked
    std::shared_ptr<void> plan;      // the last one that writes status
  };

  void on_job(const std::string& key, const Json* before, const Json* after);
  void on_pod(const std::string& key, const Json* before, const Json* after);
  bool may_write() const;
  void schedule();
  void work();
  void look_at(const std::string& key);
  Memory& remember(const Json& document);
  Observed observe(const std::string& key, const Json& document);
  void forget(const std::string& key);
  void after_plan(const std::string& key, const std::string& uid, Execution execution);
  bool knows_answer(const Plan& plan, const std::string& uid);
  TimePoint next_try(int refusals) const;
  // nullptr: the job has gone meanwhile.
  Memory* memory_of(const JobContext& job);

  void job_written(const SharedJson& job) override;
  void job_read(const SharedJson& job) override;
  void job_gone(const JobContext& job) override;
  void pod_written(const SharedJson& pod) override;
  void pod_read(const SharedJson& pod) override;
  void pod_gone(const JobContext& job, const std::string& name, const std::string& uid) override;
  void pod_absent(const JobContext& job, const std::string& name) override;
  void pod_refused(const JobContext& job, const std::string& reason,
                   const std::string& message) override;
  void pod_checked(const JobContext& job, int64_t generation, const std::string& refusal,
                   bool is_answered) override;
  void create_failed(const JobContext& job, const std::string& message) override;
  bool status_refused(const JobContext& job) override;
  void pod_taken(const JobContext& job) override;
  void agent_said(const JobContext& job, const std::string& pod_uid,
                  const AgentState& state) override;

  Timers& timers_;
  ControllerOptions options_;
  std::function<void()> on_lost_;
  WorkQueue queue_;
  Fence fence_;
  Executor executor_;
  AgentWatchers watchers_;
  ProgressBudget budget_;
  AcceptedPods accepted_;
  ReconcileMetrics reconcile_metrics_;
  JobMetrics job_metrics_;
  Informer jobs_;
  Informer pods_;
  std::optional<LeaderElection> election_;

  std::map<std::string, std::map<std::string, PodView>> pods_by_owner_;  // UID -> key -> pod
  std::map<std::string, Memory> memory_;
  bool leads_ = false;
  bool is_stopped_ = false;
  bool is_scheduled_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep
