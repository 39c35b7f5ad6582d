#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/random.h"
#include "controller/loop/api_client.h"
#include "controller/loop/timers.h"

namespace lockstep::loop {

struct LeaseOptions {
  std::string namespace_ = "default";
  std::string name = "lockstep-controller";
  std::string identity{};  // of this process, unique
  Duration duration = std::chrono::seconds(15);
  Duration renew_deadline = std::chrono::seconds(10);
  Duration retry_period = std::chrono::seconds(2);
};

// Elects one leader among the replicas by a Lease. Whether another's lease has expired depends on
// how long this process has seen no change of it, never on the times in it. A leader renews what it
// wrote last. If that was changed or is gone (the answer to a renewal was lost, somebody added a
// label), the leader reads the Lease: its holder is who leads.
// A leader that can't renew within renew_deadline of the time when it was due, or reads another
// holder, calls on_lost once and stops. Its owner then ends the process. A slow server alone takes
// no lease away. resourceVersions and UIDs guard against writes already in flight; a
// LeaderGuardedClient that asks is_certain() holds back the others. Source: client-go,
// tools/leaderelection.
class LeaderElection {
 public:
  LeaderElection(ApiClient& api, Timers& timers, Random& random, LeaseOptions options,
                 std::function<void()> on_started, std::function<void()> on_lost);
  ~LeaderElection();
  LeaderElection(const LeaderElection&) = delete;
  LeaderElection& operator=(const LeaderElection&) = delete;

  void start();
  // Returns whether this process leads and can't have been succeeded yet. Its last successful
  // request for the lease was sent a shorter time ago than others wait, however long the answer
  // took.
  bool is_certain() const { return is_leader_ && timers_.now() < certain_until_; }
  // Returns why this process cannot take part in the election: the lease was not read yet, or for
  // renew_deadline no attempt to read it, or to write it when that was due, has succeeded. "" if it
  // can, also if another leads.
  std::string trouble() const;
  // Gives the lease up, so that another replica need not wait until it expires. Calls `done` in any
  // case. Waits for a renewal in flight, and retries once if somebody changed the Lease meanwhile.
  void release(std::function<void()> done);

 private:
  void attempt();
  void read();
  void on_read(ApiReply reply);
  void write(ApiVerb verb, Json lease);
  void on_written(ApiReply reply);
  void observe(const Json& lease);
  void note_success();
  void note_failure(const char* what, const ApiReply& reply);
  TimePoint free_at() const;  // for the one that wants to take it
  bool may_take() const;
  Json record(bool is_new_holder) const;
  Duration next_check_delay();
  void schedule_attempt();
  void check_deadline();
  void lose();
  void give_up(bool may_retry);
  ApiRequest request(ApiVerb verb) const;

  ApiClient& api_;
  Timers& timers_;
  Random& random_;
  LeaseOptions options_;
  std::function<void()> on_started_;
  std::function<void()> on_lost_;

  Json lease_;  // last seen; null if none
  TimePoint seen_at_{};
  TimePoint asked_at_{};
  TimePoint certain_until_{};
  bool is_leader_ = false;
  bool is_stopped_ = false;
  bool is_asking_ = false;  // a request is open
  std::optional<TimePoint> worked_at_;
  std::string failure_;  // of the last attempt; "" if it worked
  std::function<void()> on_released_;
  std::optional<Timers::Id> retry_timer_;
  std::optional<Timers::Id> deadline_timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::loop
