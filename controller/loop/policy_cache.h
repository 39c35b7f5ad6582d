#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/base/random.h"
#include "controller/loop/api_client.h"
#include "controller/loop/executor.h"
#include "controller/loop/informer.h"
#include "controller/loop/retry.h"
#include "controller/loop/timers.h"
#include "controller/plan/plan.h"

namespace lockstep::loop {

// The NetworkPolicies of all jobs as the server has them, and what is known about writing them.
// Single-threaded.
class PolicyCache {
 public:
  struct Options {
    InformerOptions informer{};
    // Returns when to write again after this many writes in a row.
    std::function<TimePoint(int writes)> next_try{};
    std::function<void(const Json& policy)> on_change{};  // both sides of a change
    std::function<void()> on_all_changed{};               // what is known of all policies
  };

  PolicyCache(ApiClient& api, Timers& timers, Random& random, Options options);

  void start() { policies_.start(); }
  void relist() { policies_.relist(); }
  // Returns whether the policies are listed, or known to be unreadable.
  bool is_known() const { return policies_.synced() || !trouble_.reason.empty(); }
  // The object in the view is valid until the cache learns of something.
  plan::NetworkPolicyView view(const ObjectMeta& job) const;

  // A plan of the job was made. Somebody may undo each write: writes of one policy back off until a
  // plan writes none.
  void planned(const std::string& job_uid, const plan::Plan& plan);
  // The job is gone.
  void forget(const std::string& job_uid) { writes_.erase(job_uid); }

  // As in CacheUpdater.
  void written(const JobContext& job, const SharedJson& policy);
  void gone(const JobContext& job, const std::string& name, const std::string& uid);
  void outdated(const JobContext& job);
  void refused(const JobContext& job, const std::string& reason, const std::string& message);
  // Returns whether that is told now.
  bool failed(const JobContext& job, const std::string& message);

 private:
  struct Trouble {  // as in plan::NetworkPolicyView; no reason: none
    std::string reason;
    std::string message;
  };
  struct Writes {         // of one job's policy
    Trouble trouble;      // of the last one
    TimePoint next_at{};  // none before then
    int answered = 0;     // in a row
    int failed = 0;       // in a row, by no fault of the policy
  };

  void on_unlisted(const ApiReply& reply);
  void on_listed();
  // Returns nullptr for a job without plans, which is gone or new.
  Writes* writes_of(const JobContext& job);

  Timers& timers_;
  Options options_;
  Informer policies_;
  Trouble trouble_;                       // of the last lists
  int lists_failed_ = 0;                  // in a row
  std::map<std::string, Writes> writes_;  // by the job's UID
};

}  // namespace lockstep::loop
