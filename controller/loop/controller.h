#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "controller/loop/accepted_pod_cache.h"
#include "controller/loop/agent_client.h"
#include "controller/loop/agent_watchers.h"
#include "controller/loop/api_client.h"
#include "controller/loop/executor.h"
#include "controller/loop/informer.h"
#include "controller/loop/job_keys.h"
#include "controller/loop/leader_election.h"
#include "controller/loop/leader_guarded_client.h"
#include "controller/loop/metrics.h"
#include "controller/loop/pods_of_job.h"
#include "controller/loop/policy_cache.h"
#include "controller/loop/progress_budget.h"
#include "controller/loop/thread_share.h"
#include "controller/loop/timers.h"
#include "controller/loop/work_queue.h"
#include "controller/plan/plan.h"

namespace lockstep::loop {

using PlanFunction =
    std::function<plan::Plan(const plan::Observed&, TimePoint now, const plan::Limits&)>;

struct ControllerOptions {
  std::string namespace_{};  // namespace of the jobs; empty: all
  std::string key{};         // secret: the tokens of new jobs derive from it (job_keys.h)
  JobKeys older_keys{};      // newest first: the tokens of running jobs may derive from them
  std::string identity = "lockstep-controller";
  PlanFunction plan = lockstep::plan::plan;
  plan::Limits limits{};
  std::optional<LeaseOptions> lease{};  // nullopt: this is the only replica
  ProgressBudget::Options progress{};
  WorkQueueOptions queue{};
  InformerOptions informer{};  // type, namespace and selector are set by the controller
  AgentWatchOptions agents{};
  // While this many plans wait for the API server, only plans of urgent jobs are started. The other
  // jobs wait in the queue, which keeps their order and lets urgent ones pass, instead of at the
  // rate limit.
  size_t plans_at_server_max = 32;
  // Time after a plan that acted until the job is looked at again, in case the change it caused is
  // not seen.
  Duration recheck = std::chrono::seconds(20);
  // Time from a pod that the server refused until the next one is sent or checked; doubles each
  // time.
  Duration refusal_first = std::chrono::seconds(1);
  Duration refusal_max = std::chrono::seconds(60);
  // Work of jobs whose plans take long rests as `share` says. `worked` is the CPU time of this
  // thread so far; unset: no rests.
  std::function<Duration()> worked{};
  ThreadShare::Options share{};
};

// The whole controller except for its I/O: caches fed by watches, a queue of jobs, and plans that
// are carried out, one at a time for each job. Everything happens on the thread that calls start(),
// runs the timers and delivers the clients' answers. Keeps references to its arguments, which must
// outlive it.
class Controller final : private CacheUpdater {
 public:
  // `on_lost` is called when this replica has lost the lease; the process must then end.
  Controller(ApiClient& api, AgentClient& agents, Timers& timers, Random& random,
             ControllerOptions options, std::function<void()> on_lost);
  ~Controller() override;

  void start();
  // Makes no more plans. Gives the lease back once all writes in flight are answered; writes that
  // wait for their turn are not sent any more.
  void stop(std::function<void()> done);

  bool is_leading() const { return leads_; }
  bool synced() const { return jobs_.synced() && pods_.synced() && knows_policies(); }
  // Returns whether the NetworkPolicies are listed, or known to be unreadable, or not made at all.
  bool knows_policies() const { return !policies_ || policies_->is_known(); }
  // Returns why the lease cannot be read or written; "" if it can, or if there is none.
  std::string lease_trouble() const { return election_ ? election_->trouble() : ""; }

  // For metrics. Job and reconcile metrics cover the time that this process led.
  const WorkQueue& queue() const { return queue_; }
  const ReconcileMetrics& reconcile_metrics() const { return reconcile_metrics_; }
  const JobMetrics& job_metrics() const { return job_metrics_; }
  const Informer& jobs() const { return jobs_; }
  using JobCounts = std::map<std::pair<std::string, std::string>, int64_t>;
  // Returns the number of jobs by namespace and state, without zeros.
  const JobCounts& job_counts() const { return job_counts_; }
  // Visits every existing job that this process has looked at, as last read.
  void visit_jobs(const std::function<void(const TrainingJob&)>& visit) const;
  const Informer& pods() const { return pods_; }
  size_t plans_at_server_max() const { return options_.plans_at_server_max; }
  size_t agents_watched() const { return watchers_.agents(); }

 private:
  struct Memory {         // about one job, by its UID
    std::string version;  // resourceVersion that the job in `seen` was read from
    // The next plan sees this, and what observe() adds.
    plan::Observed seen;
    std::vector<std::string> tokens;  // under each key, newest first
    int64_t refused_generation = 0;   // the job's generation that seen.refusal is about
    int refusals = 0;                 // in a row
    int creates_failed = 0;           // in a row
    std::string version_refused;      // of the document for which the server refused a status
    int64_t checked_generation = 0;   // the job's generation that seen.pod_check is about
    int checks_refused = 0;           // in a row
    std::string template_digest;      // of the pod that was checked last
    std::shared_ptr<void> plan;       // the last plan that writes status
  };

  void on_job(const std::string& key, const Json* before, const Json* after);
  void on_pod(const std::string& key, const Json* before, const Json* after);
  void look_at(const std::string& key);
  bool may_write() const;
  void schedule();
  void work();
  void reconcile(const std::string& key);
  Duration worked() const { return options_.worked ? options_.worked() : Duration::zero(); }
  void rest_after(const std::string& key, Duration cost);
  Memory& remember(const CachedObject& object);
  plan::Plan plan_for(const std::string& key, Memory& memory);
  void observe(Memory& memory);
  void lend_views(const std::string& key, plan::Observed& seen);
  void forget(const std::string& key);
  void after_plan(const std::string& key, const std::string& uid, Execution execution);
  bool knows_answer(const plan::Plan& plan, Memory& memory);
  TimePoint next_try(int refusals) const;
  // Returns nullptr if the job is gone by now.
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
  void network_policy_written(const JobContext& job, const SharedJson& policy) override;
  void network_policy_gone(const JobContext& job, const std::string& name,
                           const std::string& uid) override;
  void network_policy_outdated(const JobContext& job) override;
  void network_policy_refused(const JobContext& job, const std::string& reason,
                              const std::string& message) override;
  void network_policy_failed(const JobContext& job, const std::string& message) override;
  void pod_accepted(const JobContext& job) override;
  void agent_reported(const JobContext& job, const std::string& pod_uid,
                      const AgentState& state) override;

  Timers& timers_;
  ControllerOptions options_;
  std::function<void()> on_lost_;
  WorkQueue queue_;
  LeaderGuardedClient guarded_api_;
  Executor executor_;
  AgentWatchers watchers_;
  ProgressBudget budget_;
  ThreadShare share_;
  AcceptedPodCache accepted_pods_;
  ReconcileMetrics reconcile_metrics_;
  JobMetrics job_metrics_;
  Informer jobs_;
  Informer pods_;
  std::optional<PolicyCache> policies_;  // if the controller makes NetworkPolicies
  std::optional<LeaderElection> election_;

  std::map<std::string, PodsOfJob> pods_by_owner_;  // by the job's UID
  std::map<std::string, Memory> memory_;
  JobCounts job_counts_;
  bool leads_ = false;
  bool is_stopped_ = false;
  bool is_scheduled_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::loop
