// Invariants of recorded failures and of agents' reports.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"
#include "controller/plan/members.h"
#include "tests/controller/sim/invariants.h"

namespace lockstep::sim {
namespace {

// A decision made because an agent was silent may be written this long after it was heard again.
constexpr Duration kWritten = std::chrono::seconds(60);
// This number of silent agents may be the controller's own fault. Fewer may be too, if they fell
// silent within kAtOnce of each other, each after its last poll.
constexpr int64_t kManySilent = 3;
constexpr Duration kAtOnce = std::chrono::seconds(25);

std::vector<int64_t> members_of(const Json& status) {
  return plan::members_from_text(string_or(status, "members", ""));
}

const Json& status_of(const Json& job) {
  return member(job, "status");
}

}  // namespace

// Returns whether the agent is, or was when the current write was decided, unheard for a while.
bool Invariants::is_unheard(const Node& node) const {
  const TimePoint now = chance_.clock.now();
  const bool was_unheard =
      node.heard_again_at != TimePoint{} && now - node.heard_again_at < kWritten;
  return !node.ip.empty() && (was_unheard || now - node.heard_at > Node::kUnheard);
}

// Checks that a recorded failure counts and is described truthfully.
void Invariants::check_failure(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const Json& failure = new_failure(before, after);
  if (failure.is_null()) return;
  const std::vector<int64_t> members = members_of(before);
  const auto index = static_cast<size_t>(int_or(failure, "nodeIndex", 0));
  const Node* node = index < members.size()
                         ? nodes_.find(uid_of(job), static_cast<int64_t>(index), members[index])
                         : nullptr;
  check_rules(job, after);
  check_failed_by_loss(job, after);
  check_never_started(job, after);
  check_given_up(job, after, node);
  check_counted(job, after, failure);
  check_places(job, failure);
  check_hang(failure, node);
  if (string_or(failure, "reason", "") == kStraggler) check_straggler(job, after, failure);
  const std::string reason = string_or(failure, "reason", "");
  const bool is_false_reporter =
      index < members.size() &&
      nodes_.sent_false_report(uid_of(job), static_cast<int64_t>(index), members[index]);
  if (is_false_reporter) ++causes_[uid_of(job)];
  if (reason == plan::kAgentDisagrees && !is_false_reporter) {
    chance_.violate("failures", "AgentDisagrees was recorded for an agent that never disagreed");
  }
  if (reason == plan::kAgentSilent) check_silence(job, node);
}

// A job ends as NeverStarted only after three equal failures of ranks that span two minutes,
// without another one of a rank in between but for those that somebody killed, or that lost a peer.
// It has made no step, and no rule is about the failure.
void Invariants::check_never_started(const Json& job, const Json& after) {
  if (!is_set(after, kFailed) || reason_of(after, kFailed) != "NeverStarted") return;
  constexpr int64_t kOfOthers[] = {kExitKilled, kExitPeerLost, kExitPeerHung};
  const auto is_passed_over = [&](const Json& failure) {
    const int64_t code = int_or(failure, "exitCode", -1);
    const bool is_of_others =
        std::find(std::begin(kOfOthers), std::end(kOfOthers), code) != std::end(kOfOthers);
    return int_or(failure, "rank", -1) < 0 ||
           (is_of_others && string_or(failure, "reason", "") != "OOMKilled");
  };
  const Json& newest = member(after, "lastFailure");
  const auto time_of = [](const Json& failure) {
    const Result<WallTime> time = wall_time_from_rfc3339(string_or(failure, "time", ""));
    return time.ok() ? *time : WallTime{};
  };
  int64_t alike = 0;
  Duration span{0};
  const Json& failures = member(after, "failures");
  for (auto failure = failures.rbegin(); failure != failures.rend(); ++failure) {
    if (is_passed_over(*failure)) continue;
    if (member(*failure, "exitCode") != member(newest, "exitCode")) break;
    ++alike;
    span = time_of(newest) - time_of(*failure);
  }
  if (alike < 3 || span < std::chrono::minutes(2)) {
    chance_.violate("never started", "a job ended after too few failures of one kind, or too soon");
  }
  if (int_or(newest, "furthestStep", 0) > 0 || !action_of_rule(job, newest).empty()) {
    chance_.violate("never started", "a job ended that has made a step, or has a rule for it");
  }
}

// A failed rank is on the node that has its place in the round.
void Invariants::check_places(const Json& job, const Json& failure) {
  const std::vector<int64_t> nodes = nodes_by_rank(status_of(job));
  const int64_t rank = int_or(failure, "rank", -1);
  const bool is_known = rank >= 0 && rank < std::ssize(nodes);
  if (rank < 0) return;
  if (is_known && nodes[static_cast<size_t>(rank)] == int_or(failure, "nodeIndex", -1)) return;
  chance_.violate("places", "a failed rank was recorded on a node that has another place");
}

// A round ends by a single failure, however many saw it, and a pod is lost once. A worker that is
// reported failed did fail in that round.
void Invariants::check_counted(const Json& job, const Json& after, const Json& failure) {
  const Json& before = status_of(job);
  const std::string uid = uid_of(job);
  const std::vector<int64_t> members = members_of(before);
  const int64_t index = int_or(failure, "nodeIndex", -1);
  const int64_t round = int_or(failure, "round", -1);
  if (round != int_or(before, "round", 0) || index < 0 || index >= std::ssize(members)) {
    return chance_.violate("restarts", "a failure of another round, or of no member, was recorded");
  }
  const int64_t incarnation = members[static_cast<size_t>(index)];
  const bool is_formed = !string_or(before, "worldHash", "").empty() &&
                         std::ranges::binary_search(round_nodes(before), index);
  const bool goes_on =
      string_or(after, "serversView", "") != string_or(before, "serversView", "") &&
      !string_or(after, "serversView", "").empty();
  const Node* node = nodes_.find(uid, index, incarnation);
  const bool is_new =
      int_or(after, "restarts", 0) == int_or(before, "restarts", 0) ||
      (goes_on
           ? node == nullptr || servers_lost_[uid].insert({node->uid, node->served.process}).second
       : is_formed ? rounds_lost_[uid].insert(round).second
                   : pods_lost_[uid].insert({index, incarnation}).second);
  if (!is_new) chance_.violate("restarts", "a failure was counted twice");
  const std::string reason = string_or(failure, "reason", "");
  const bool is_by_others = reason == kHang || reason == plan::kSuspected || reason == kStraggler;
  const bool is_of_worker = int_or(failure, "rank", -1) >= 0 && !is_by_others;
  // A rank that leaves with a pod that is stopped looks so if that pod's agent falsely reports an
  // end, which hides the stop.
  const bool has_left = int_or(failure, "exitCode", -1) == kExitStopped && has_false_end();
  if (is_of_worker && !has_left && !nodes_.has_failed(uid, index, incarnation, round) &&
      !nodes_.sent_false_report(uid, index, incarnation)) {
    chance_.violate("restarts", "a worker's failure was recorded that did not happen");
  }
}

bool Invariants::has_unheard_member(const Json& job) const {
  const std::vector<int64_t> members = members_of(status_of(job));
  for (size_t i = 0; i < members.size(); ++i) {
    const Node* node = nodes_.find(uid_of(job), static_cast<int64_t>(i), members[i]);
    if (node != nullptr && (node->is_silent || is_unheard(*node))) return true;
  }
  return false;
}

// A hung rank still exists; the loss of its machine is another kind of failure.
void Invariants::check_hang(const Json& failure, const Node* node) {
  if (string_or(failure, "reason", "") != kHang) return;
  chance_.count(Transition::kHangNamed);
  if (node == nullptr) return;
  if (!node->hung_at && chance_.counts.controllers_are_well()) {
    chance_.violate("failures", "a hang was recorded for a healthy rank");
  }
  if (node->is_silent && node->hung_at == node->lost_at && stalls_ == 0) {
    chance_.violate("failures", "a hang was recorded for a lost machine");
  }
}

void Invariants::check_silence(const Json& job, const Node* node) {
  const bool is_lost = node != nullptr && node->is_silent;
  if (node != nullptr && !is_lost && is_unheard(*node)) ++causes_[uid_of(job)];
  if (node != nullptr && node->answers()) check_partition(*node);
  if (!chance_.counts.controllers_are_well()) return;
  if (!is_lost) {
    chance_.violate("failures", "AgentSilent was recorded for an agent that was not lost");
  } else {
    check_lateness(job, *node);
  }
}

// Returns whether all agents that the controller can poll are on the same machine.
bool Invariants::is_alone(const Node& node) const {
  return std::none_of(nodes_.all().begin(), nodes_.all().end(), [&node](const auto& entry) {
    const Node& other = *entry.second;
    return other.machine != node.machine && other.answers() && other.state.phase == "Running";
  });
}

// Returns whether at least half of the machines were heard lately. Then a controller cannot know
// that its network is about to fail.
bool Invariants::are_most_heard() const {
  const TimePoint lately = chance_.clock.now() - plan::Limits{}.agent_silence / 2;
  std::map<std::string, bool> is_heard;  // by machine
  for (const auto& [uid, node] : nodes_.all()) {
    if (!node->ip.empty()) is_heard[node->machine] |= node->heard_at >= lately;
  }
  const auto heard =
      std::ranges::count_if(is_heard, [](const auto& entry) { return entry.second; });
  return 2 * heard >= std::ssize(is_heard);
}

// A controller that hears no agent suspects its own network: it gives up no healthy pod until a
// long time has passed.
void Invariants::check_partition(const Node& node) {
  const auto& faults = chance_.counts.faults;
  const auto times = [&](Fault fault) { return faults[static_cast<size_t>(fault)]; };
  const bool may_be_deaf = times(Fault::kLostRequest) > 0 || times(Fault::kLostReply) > 0 ||
                           times(Fault::kStall) > 0 || is_alone(node) || are_most_heard();
  const Duration silent = chance_.clock.now() - node.heard_at;
  if (may_be_deaf || silent >= plan::Limits{}.agent_silence_if_suspect) return;
  chance_.violate("failures", "a healthy pod was lost because the controller was partitioned");
}

// Silence counts from the forming of the round. A job with an invalid spec is left alone.
void Invariants::check_lateness(const Json& job, const Node& node) {
  constexpr Duration kNoticedMax = std::chrono::seconds(90);
  const TimePoint since = std::max(node.lost_at, formed_at_[uid_of(job)]);
  const bool was_wrong = chance_.counts.faults[static_cast<size_t>(Fault::kIllegalEdit)] > 0;
  const auto& losses = nodes_.losses();
  const int64_t at_once = std::count_if(losses.begin(), losses.end(), [&](TimePoint lost_at) {
    return std::max(lost_at, node.lost_at) - std::min(lost_at, node.lost_at) <= kAtOnce;
  });
  const bool are_many = std::ssize(losses) >= kManySilent || at_once > 1;
  if (chance_.clock.now() - since > kNoticedMax && !was_wrong && !are_many) {
    chance_.violate("failures", "a silent agent was noticed too late");
  }
}

// Whatever agents report, status stays within the limits of the CRD.
void Invariants::check_numbers(const Json& after) {
  constexpr int64_t kStepMax = int64_t{1} << 53;
  constexpr int64_t kCodeMax = 255;
  const Json& failure = member(after, "lastFailure");
  const int64_t code = int_or(failure, "exitCode", 0);
  for (const Json* part : {&failure, &member(after, "progress")}) {
    const int64_t step = int_or(*part, "step", 0);
    if (step < 0 || step > kStepMax)
      chance_.violate("numbers", "step out of range: " + std::to_string(step));
  }
  if (code < -1 || code > kCodeMax || int_or(failure, "rank", 0) < -1) {
    chance_.violate("numbers", "a failure's exit code or rank is out of range, exit code " +
                                   std::to_string(code));
  }
}

}  // namespace lockstep::sim
