#include "controller/loop/leader_election.h"

#include <algorithm>

#include "common/base/log.h"

namespace lockstep::loop {
namespace {

const Json& member(const Json& object, std::string_view key) {
  static const Json kNothing;
  const Json* found = find_member(object, key);
  return found == nullptr ? kNothing : *found;
}

std::string holder_of(const Json& lease) {
  return string_or(member(lease, "spec"), "holderIdentity", "");
}

int64_t whole_seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

}  // namespace

LeaderElection::LeaderElection(ApiClient& api, Timers& timers, Random& random, LeaseOptions options,
                               std::function<void()> on_started, std::function<void()> on_lost)
    : api_(api),
      timers_(timers),
      random_(random),
      options_(std::move(options)),
      on_started_(std::move(on_started)),
      on_lost_(std::move(on_lost)) {}

LeaderElection::~LeaderElection() {
  if (retry_timer_) timers_.cancel(*retry_timer_);
  if (deadline_timer_) timers_.cancel(*deadline_timer_);
}

void LeaderElection::start() {
  attempt();
}

ApiRequest LeaderElection::request(ApiVerb verb) const {
  return {.verb = verb,
          .type = kLeases,
          .namespace_ = options_.namespace_,
          .name = verb == ApiVerb::kCreate ? std::string() : options_.name};
}

void LeaderElection::attempt() {
  if (is_leader_ && !lease_.is_null()) {
    // The holder need not read the lease first: if somebody took it, the version conflicts.
    Json renewed = lease_;
    renewed["spec"] = record(false);
    write(ApiVerb::kReplace, std::move(renewed));
    return;
  }
  read();
}

void LeaderElection::read() {
  is_asking_ = true;
  api_.send(request(ApiVerb::kGet), [this, alive = std::weak_ptr(alive_)](ApiReply reply) {
    if (!alive.expired()) on_read(std::move(reply));
  });
}

void LeaderElection::on_read(ApiReply reply) {
  is_asking_ = false;
  if (is_stopped_) {
    if (on_released_) give_up(true);
    return;
  }
  if (reply.outcome == ApiOutcome::kNotFound) {
    lease_ = nullptr;
    Json fresh = {{"apiVersion", "coordination.k8s.io/v1"},
                  {"kind", "Lease"},
                  {"metadata", {{"name", options_.name}, {"namespace", options_.namespace_}}},
                  {"spec", record(true)}};
    write(ApiVerb::kCreate, std::move(fresh));
    return;
  }
  if (!reply.ok()) {
    note_failure("read", reply);
    schedule_attempt();
    return;
  }
  observe(reply.body);
  if (is_leader_ && holder_of(lease_) != options_.identity) {
    log_warning("another replica took the lease", {{"identity", options_.identity}});
    lose();
    return;
  }
  if (!may_take()) {
    note_success();
    schedule_attempt();
    return;
  }
  Json taken = lease_;
  taken["spec"] = record(holder_of(lease_) != options_.identity);
  write(ApiVerb::kReplace, std::move(taken));
}

void LeaderElection::observe(const Json& lease) {
  if (lease == lease_) return;
  lease_ = lease;
  seen_at_ = timers_.now();
}

void LeaderElection::note_success() {
  worked_at_ = timers_.now();
  failure_.clear();
}

void LeaderElection::note_failure(const char* what, const ApiReply& reply) {
  const std::string outcome(outcome_name(reply.outcome));
  log_warning(std::string("could not ") + what + " the lease",
              {{"outcome", outcome}, {"error", reply.message}});
  // Another replica was faster, so the server works.
  if (reply.outcome == ApiOutcome::kConflict || reply.outcome == ApiOutcome::kAlreadyExists) {
    return note_success();
  }
  failure_ = "could not " + std::string(what) + " the lease " + options_.namespace_ + "/" +
             options_.name + ": " + outcome + ": " + reply.message;
}

std::string LeaderElection::trouble() const {
  if (!worked_at_) return failure_.empty() ? "the lease was not read yet" : failure_;
  const bool is_lasting = timers_.now() - *worked_at_ > options_.renew_deadline;
  return is_lasting ? failure_ : "";
}

TimePoint LeaderElection::free_at() const {
  const std::string holder = holder_of(lease_);
  if (holder.empty() || holder == options_.identity) return seen_at_;
  const Json& spec = member(lease_, "spec");
  return seen_at_ + std::chrono::seconds(
                        int_or(spec, "leaseDurationSeconds", whole_seconds(options_.duration)));
}

bool LeaderElection::may_take() const {
  return timers_.now() >= free_at();
}

Json LeaderElection::record(bool is_new_holder) const {
  const Json& old = member(lease_, "spec");
  const std::string now = rfc3339_micro(timers_.wall_now());
  const int64_t transitions = int_or(old, "leaseTransitions", 0);
  return {{"holderIdentity", options_.identity},
          {"leaseDurationSeconds", whole_seconds(options_.duration)},
          {"acquireTime", is_new_holder ? now : string_or(old, "acquireTime", now)},
          {"renewTime", now},
          {"leaseTransitions", is_new_holder && !lease_.is_null() ? transitions + 1 : transitions}};
}

void LeaderElection::write(ApiVerb verb, Json lease) {
  ApiRequest write = request(verb);
  write.body = std::move(lease);
  asked_at_ = timers_.now();
  is_asking_ = true;
  api_.send(std::move(write), [this, alive = std::weak_ptr(alive_)](ApiReply reply) {
    if (!alive.expired()) on_written(std::move(reply));
  });
}

void LeaderElection::on_written(ApiReply reply) {
  is_asking_ = false;
  if (is_stopped_) {
    if (reply.ok()) observe(reply.body);
    if (on_released_) give_up(true);
    return;
  }
  const bool is_another =
      reply.outcome == ApiOutcome::kConflict || reply.outcome == ApiOutcome::kNotFound;
  if (is_another && is_leader_) {
    read();
    return;
  }
  if (!reply.ok()) {
    note_failure("write", reply);
    schedule_attempt();
    return;
  }
  note_success();
  observe(reply.body);
  certain_until_ = asked_at_ + options_.retry_period + options_.renew_deadline;
  if (deadline_timer_) timers_.cancel(*deadline_timer_);
  deadline_timer_ =
      timers_.after(options_.retry_period + options_.renew_deadline, [this] { check_deadline(); });
  schedule_attempt();
  if (is_leader_) return;
  is_leader_ = true;
  log_info("this replica is the leader", {{"identity", options_.identity}});
  on_started_();
}

// A standby looks twice as often as the leader renews, and at the moment when the lease expires. It
// thus learns of the last renewal soon, and adds no part of a period to the lease.
Duration LeaderElection::next_check_delay() {
  if (is_leader_) return options_.retry_period;
  const Duration half = options_.retry_period / 2;
  const Duration look = half + from_seconds(0.2 * to_seconds(half) * random_.uniform());
  if (lease_.is_null() || may_take()) return look;
  return std::min(look, free_at() - timers_.now());
}

void LeaderElection::schedule_attempt() {
  if (retry_timer_) timers_.cancel(*retry_timer_);
  retry_timer_ = timers_.after(next_check_delay(), [this] {
    retry_timer_.reset();
    attempt();
  });
}

void LeaderElection::check_deadline() {
  deadline_timer_.reset();
  if (!is_leader_ || is_stopped_) return;
  log_error("could not renew the lease before its deadline", {{"identity", options_.identity}});
  lose();
}

void LeaderElection::lose() {
  is_leader_ = false;
  is_stopped_ = true;
  if (retry_timer_) timers_.cancel(*retry_timer_);
  retry_timer_.reset();
  on_lost_();
}

void LeaderElection::release(std::function<void()> done) {
  const bool was_leader = is_leader_;
  is_leader_ = false;
  is_stopped_ = true;
  if (retry_timer_) timers_.cancel(*retry_timer_);
  if (deadline_timer_) timers_.cancel(*deadline_timer_);
  retry_timer_.reset();
  deadline_timer_.reset();
  if (!was_leader) {
    done();
    return;
  }
  on_released_ = std::move(done);
  if (!is_asking_) give_up(true);
}

// Gives up only a lease that is still this process's own. The version ensures that; after a
// conflict, the holder that is read then.
void LeaderElection::give_up(bool may_retry) {
  Json given = lease_;
  given["spec"]["holderIdentity"] = "";
  given["spec"]["leaseDurationSeconds"] = 1;
  ApiRequest write = request(ApiVerb::kReplace);
  write.body = std::move(given);
  api_.send(std::move(write), [this, may_retry, alive = std::weak_ptr(alive_)](ApiReply reply) {
    if (alive.expired()) return;
    if (reply.outcome != ApiOutcome::kConflict || !may_retry) return on_released_();
    api_.send(request(ApiVerb::kGet), [this, alive](ApiReply read) {
      if (alive.expired()) return;
      if (!read.ok() || holder_of(read.body) != options_.identity) return on_released_();
      lease_ = read.body;
      give_up(false);
    });
  });
}

}  // namespace lockstep::loop
