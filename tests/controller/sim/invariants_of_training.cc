// Invariants of slow ranks and of losses.
#include <algorithm>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"
#include "controller/plan/members.h"
#include "tests/controller/sim/invariants.h"
#include "tests/controller/sim/users.h"

namespace lockstep::sim {
namespace {

using std::chrono::seconds;

// A controller that is well has named a slow rank, or acted on one, by this time.
constexpr Duration kToldMax = seconds(10);

const Json& status_of(const Json& job) {
  return member(job, "status");
}

std::string message_of(const Json& status, std::string_view type) {
  return string_or(condition_in(status, type), "message", "");
}

const Json& rules_of(const Json& job) {
  return member(member(member(job, "spec"), "failure"), "rules");
}

// Returns the first rule about the event, or null.
const Json& rule_about(const Json& job, std::string_view event) {
  static const Json kNone;
  for (const Json& rule : rules_of(job)) {
    if (string_or(rule, "event", "") == event) return rule;
  }
  return kNone;
}

LossRules loss_rules_of(const Json& job) {
  const LossRules none;
  const Json& spike = rule_about(job, kLossSpike);
  const int64_t deviations = int_or(spike, "deviations", 0);
  return {.not_finite = string_or(rule_about(job, kLossNotFinite), "action", none.not_finite),
          .spike = string_or(spike, "action", none.spike),
          .deviations = deviations > 0 ? deviations : none.deviations};
}

Duration patience_of(const Json& rule) {
  return seconds(hang_seconds_from_text(string_or(rule, "after", "")).value_or(kStragglerSeconds));
}

// Returns -1 if the message names no rank.
int64_t rank_named_by(const std::string& message) {
  constexpr std::string_view kStart = "rank ";
  return message.starts_with(kStart) ? std::atoll(message.c_str() + kStart.size()) : -1;
}

// "... (3 so far)". Returns 0 if there is no such condition.
int64_t skips_told(const Json& status) {
  const std::string message = message_of(status, kBatchSkipped);
  const size_t at = message.rfind('(');
  return at == std::string::npos ? 0 : std::atoll(message.c_str() + at + 1);
}

bool has_lasted(const std::optional<TimePoint>& since, Duration time, TimePoint now) {
  return since && now - *since > time;
}

}  // namespace

const Node* Invariants::node_of_rank(const Json& job, const Json& status, int64_t rank) const {
  const std::vector<int64_t> nodes = nodes_by_rank(status);
  const std::vector<int64_t> members = plan::members_from_text(string_or(status, "members", ""));
  if (rank < 0 || rank >= std::ssize(nodes)) return nullptr;
  const int64_t index = nodes[static_cast<size_t>(rank)];
  if (index >= std::ssize(members)) return nullptr;
  const Node* node = nodes_.find(uid_of(job), index, members[static_cast<size_t>(index)]);
  const bool is_of_round =
      node != nullptr && node->state.hash == string_or(status, "worldHash", "");
  return is_of_round ? node : nullptr;
}

// Returns the node of the round whose rank Straggling names; nullptr if it names none.
const Node* Invariants::named_as_slow(const Json& job, const Json& status) const {
  if (!is_set(status, kStraggling)) return nullptr;
  return node_of_rank(job, status, rank_named_by(message_of(status, kStraggling)));
}

// Returns whether all ranks of the round train, and their agents answer.
bool Invariants::is_reported_by_all(const Json& job, const Json& status) const {
  const std::vector<int64_t> nodes = round_nodes(status);
  for (int64_t rank = 0; rank < std::ssize(nodes); ++rank) {
    const Node* node = node_of_rank(job, status, rank);
    if (node == nullptr || !node->answers() || !node->trains() || is_unheard(*node)) return false;
  }
  return !nodes.empty();
}

// Straggling names a rank that is slow, from soon after it is until soon after it isn't.
void Invariants::check_stragglers(const Json& job, const Json& after) {
  check_named(job, after);
  const Json& before = status_of(job);
  const bool can_know = chance_.counts.controllers_are_well() && is_set(before, kRunning) &&
                        is_set(after, kRunning) && !is_finished(after) &&
                        is_reported_by_all(job, after);
  if (can_know) check_slow_in_time(job, after);
}

void Invariants::check_named(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const std::string message = message_of(after, kStraggling);
  const bool was_named = is_set(before, kStraggling);
  const bool is_named = is_set(after, kStraggling);
  if (was_named && !is_named && reason_of(after, kStraggling) == "AsFastAsOthers") {
    chance_.count(Transition::kSlowNoMore);
  }
  if (!is_named || (was_named && message == message_of(before, kStraggling))) return;
  chance_.count(Transition::kSlowNamed);
  const Node* node = named_as_slow(job, after);
  if (node == nullptr) return;  // its pod is gone, or has another round by now
  if (!node->slow.was_slow) {
    chance_.violate("stragglers", "a rank was named that was not slow: " + message);
  }
  if (message.find(" on " + node->machine + " ") == std::string::npos) {
    chance_.violate("stragglers", "a slow rank was named on another machine: " + message);
  }
}

void Invariants::check_slow_in_time(const Json& job, const Json& after) {
  const TimePoint now = chance_.clock.now();
  const Node* named = named_as_slow(job, after);
  // An old report may name a rank, or be why one is named no more, until the next one comes.
  const std::string since = string_or(condition_in(after, kStraggling), "lastTransitionTime", "");
  const Result<WallTime> changed_at = wall_time_from_rfc3339(since);
  const bool is_so_for_long =
      changed_at.ok() && !has_clock_jumped() && chance_.clock.wall_now() - *changed_at > kToldMax;
  if (named != nullptr && is_so_for_long && has_lasted(named->slow.fast_since, kToldMax, now)) {
    chance_.violate("stragglers", "a rank is still named that is as fast as others");
  }
  const int64_t servers = int_or(member(member(job, "spec"), "parameterServers"), "nodes", 0);
  for (int64_t rank = 0; rank < std::ssize(round_nodes(after)) - servers; ++rank) {
    const Node& node = *node_of_rank(job, after, rank);
    const bool is_unnamed = !is_set(after, kStraggling) && (is_so_for_long || !changed_at.ok());
    if (is_unnamed && has_lasted(node.slow.slow_since, kToldMax, now)) {
      chance_.violate("stragglers", "a slow rank was not named: " + node.key);
    }
  }
  const Json& rule = rule_about(job, kStraggler);
  const bool may_act = !rule.is_null() && !is_illegal(member(job, "spec")) && !has_clock_jumped() &&
                       int_or(after, "restarts", 0) <
                           int_or(member(member(job, "spec"), "failure"), "maxRestarts", 10);
  if (may_act && named != nullptr &&
      has_lasted(named->slow.slow_since, patience_of(rule) + kToldMax, now)) {
    chance_.violate("stragglers", "a slow rank was not replaced despite the rule");
  }
}

// A round ends because of a slow rank only if a rule says so, and only after its time.
void Invariants::check_straggler(const Json& job, const Json& after, const Json& failure) {
  const Json& before = status_of(job);
  const Json& rule = rule_about(job, kStraggler);
  const int64_t index = int_or(failure, "nodeIndex", -1);
  ++causes_[uid_of(job)];
  chance_.count(Transition::kSlowReplaced);
  if (rule.is_null()) return chance_.violate("stragglers", "a round ended without a rule");
  const bool is_same =
      is_set(before, kStraggling) &&
      rank_named_by(message_of(before, kStraggling)) == int_or(failure, "rank", -1);
  if (!is_same) return chance_.violate("stragglers", "a rank was replaced that was not named");
  const std::string since = string_or(condition_in(before, kStraggling), "lastTransitionTime", "");
  const Result<WallTime> named_at = wall_time_from_rfc3339(since);
  const Duration named = chance_.clock.wall_now() - *named_at;
  if (!has_clock_jumped() && named + clock_error() < patience_of(rule)) {
    chance_.violate("stragglers", "a slow rank was replaced before its time");
  }
  const Node* node = named_as_slow(job, before);
  if (node != nullptr && chance_.counts.controllers_are_well() &&
      has_lasted(node->slow.fast_since, kToldMax, chance_.clock.now())) {
    chance_.violate("stragglers", "a rank was replaced that was as fast as others");
  }
  if (is_set(after, kFailed) && reason_of(after, kFailed) == "TooManyRestarts") {
    chance_.violate("stragglers", "a slow rank failed a job that has no restarts left");
  }
  if (string_or(failure, "action", "") != "RecreatePod" || node == nullptr) return;
  if (!slow_replaced_[uid_of(job)].insert({index, node->incarnation}).second) {
    chance_.violate("stragglers", "a slow rank's pod was replaced twice");
  }
}

void Invariants::note_rules(const Json& job) {
  std::vector<LossRules>& known = loss_rules_[uid_of(job)];
  const LossRules now = loss_rules_of(job);
  if (known.empty() || known.back() != now) known.push_back(now);
}

// Ranks that are to run get the job's rules, those of one round perhaps older and newer ones.
void Invariants::check_loss_rules(const Assignment& assignment) {
  const LossRules sent = assignment.losses;
  const std::vector<LossRules>& known = loss_rules_[assignment.world.job_uid];
  if (assignment.action != "Run" || std::ranges::find(known, sent) != known.end()) return;
  chance_.violate("losses", "an agent was assigned rules that the job does not have: " +
                                sent.not_finite + ", " + sent.spike);
}

void Invariants::check_losses(const Json& job, const Json& after) {
  check_skips(job, after);
  check_lost_steps(job, after);
}

// A loss ends the job if the rules say so, and with its reason; a restart would repeat it.
void Invariants::check_failed_by_loss(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const Json& failure = new_failure(before, after);
  const std::string reason = string_or(failure, "reason", "");
  const int64_t rank = int_or(failure, "rank", -1);
  const bool is_by_others = reason == kHang || reason == plan::kSuspected || reason == kStraggler;
  const Node* node = rank < 0 || is_by_others ? nullptr : node_of_rank(job, before, rank);
  const bool is_by_loss =
      node != nullptr && nodes_.failed_by_loss(uid_of(job), node->index, node->incarnation,
                                               int_or(failure, "round", -1));
  const bool may_be_false =
      node != nullptr && nodes_.sent_false_report(uid_of(job), node->index, node->incarnation);
  const bool is_final = is_set(after, kFailed) && reason_of(after, kFailed) == "NotRetryable";
  if (is_by_loss) chance_.count(Transition::kFailedByLoss);
  if (may_be_false) return;
  if (is_final && node != nullptr && !is_by_loss) {
    chance_.violate("losses", "a job ended as not retryable without a bad loss");
  }
  if (!is_by_loss) return;
  const bool says_why = reason == kLossNotFinite || reason == kLossSpike;
  if (!is_set(after, kFailed) || !says_why) {
    chance_.violate("losses", "a loss that ends the job did not, or was recorded as " + reason);
  }
}

// Such a report lacks what the rank has yet to do.
bool Invariants::has_false_end() const {
  return chance_.counts.faults[static_cast<size_t>(Fault::kFalseEnd)] > 0;
}

// BatchSkipped stays, tells of no more than there was, and of all that the result lacks.
void Invariants::check_skips(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const int64_t told = skips_told(after);
  if (told > skips_told(before)) chance_.count(Transition::kBatchSkipped);
  if (is_set(before, kBatchSkipped) && !is_set(after, kBatchSkipped)) {
    chance_.violate("losses", "BatchSkipped did not stay");
  }
  if (told > nodes_.skips_of(uid_of(job))) {
    chance_.violate("losses", "more batches were reported as skipped than were");
  }
  const bool completes = is_set(after, kComplete) && !is_set(before, kComplete);
  const Nodes::Training* training = nodes_.training_of(string_or(after, "worldHash", ""));
  if (!completes || training == nullptr || has_false_end()) return;
  if (told < training->skips && !member(member(job, "spec"), "train").is_null()) {
    chance_.violate("losses", "a job completed without saying that batches were skipped");
  }
}

// Only a failure loses steps: those from where the next round resumed up to it.
void Invariants::check_lost_steps(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const Json& failure = member(after, "lastFailure");
  const int64_t resumed = int_or(failure, "resumedStep", -1);
  // A failure outside of the round takes the place of one that the round has yet to resume after.
  const Json& last = member(before, "lastFailure");
  const bool was_open = !last.is_null() && int_or(last, "resumedStep", -1) < 0;
  const bool is_new = resumed >= 0 && was_open;
  const int64_t lost =
      int_or(member(after, "lost"), "steps", 0) - int_or(member(before, "lost"), "steps", 0);
  const int64_t repeated = is_new ? std::max<int64_t>(0, int_or(failure, "step", 0) - resumed) : 0;
  if (lost != repeated) {
    chance_.violate("losses", "steps were lost that were not repeated: " + std::to_string(lost));
  }
  const Json& checkpoint = member(member(job, "spec"), "checkpoint");
  const bool is_told =
      !string_or(checkpoint, "path", "").empty() || !member(checkpoint, "memory").is_null();
  const Nodes::Training* training = nodes_.training_of(string_or(after, "worldHash", ""));
  if (!is_new || !is_told || training == nullptr || has_false_end()) return;
  if (resumed != training->resumed_step) {
    chance_.violate("losses", "a round resumed elsewhere than status tells");
  }
}

}  // namespace lockstep::sim
