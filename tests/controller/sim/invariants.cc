#include "tests/controller/sim/invariants.h"

#include <algorithm>

#include "common/api/round_members.h"
#include "controller/plan/conditions.h"
#include "controller/plan/draining.h"
#include "controller/plan/members.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_view.h"
#include "tests/controller/sim/users.h"

namespace lockstep::sim {
namespace {

// By this time every controller must have received a change.
constexpr Duration kNewsMax = std::chrono::minutes(8);

std::vector<int64_t> members_of(const Json& status) {
  return plan::members_from_text(string_or(status, "members", ""));
}

const Json& status_of(const Json& job) {
  return member(job, "status");
}

std::string uid_of_regarding(const Json& event) {
  return string_or(member(event, "regarding"), "uid", "");
}

bool restarts_in_place(const Json& status) {
  return string_or(member(status, "lastFailure"), "action", "") == "RestartInPlace";
}

}  // namespace

// Nodes that are still to join the round don't count.
std::vector<int64_t> round_nodes(const Json& status) {
  const Json& rendezvous = member(status, "rendezvous");
  const RendezvousStatus stored{.worldSize = int_or(rendezvous, "worldSize", 0),
                                .nodeIndices = string_or(rendezvous, "nodeIndices", "")};
  return lockstep::round_members(stored, 1);
}

std::vector<int64_t> nodes_by_rank(const Json& status) {
  std::vector<int64_t> nodes = round_nodes(status);
  const Result<ServersView> view = servers_view_from_text(string_or(status, "serversView", ""));
  const size_t added = view.ok() ? view->servers.size() - first_servers(*view) : 0;
  for (size_t i = 0; i < added; ++i) nodes.push_back(std::ssize(nodes));
  return nodes;
}

const Json& condition_in(const Json& status, std::string_view type) {
  static const Json kNone;
  for (const Json& condition : member(status, "conditions")) {
    if (condition["type"].get_ref<const std::string&>() == type) return condition;
  }
  return kNone;
}

bool is_set(const Json& status, const char* type) {
  return string_or(condition_in(status, type), "status", "") == "True";
}

std::string reason_of(const Json& status, const char* type) {
  return string_or(condition_in(status, type), "reason", "");
}

bool is_finished(const Json& status) {
  return is_set(status, kComplete) || is_set(status, kFailed);
}

void Invariants::job_changed(const FakeStore::Event& event) {
  const std::string uid = uid_of(*event.object);
  jobs_.insert(uid);
  note_rules(*event.object);
  if (is_terminating(*event.object)) deleted_at_.emplace(uid, chance_.clock.now());
}

void Invariants::assignment_received(const Assignment& assignment) {
  check_loss_rules(assignment);
  if (hashes_[assignment.world.job_uid][assignment.world.round] != assignment.hash) {
    chance_.violate("rounds", "an agent was assigned a round that status does not record");
  }
  const std::vector<int64_t>& nodes =
      round_nodes_[assignment.world.job_uid][assignment.world.round];
  const bool are_same =
      std::ranges::equal(nodes, assignment.world.members, {}, {}, &WorldMember::index);
  if (!are_same) chance_.violate("places", "an agent was assigned other nodes than status records");
  const bool is_added =
      assignment.node_index >= std::ssize(nodes) && find_place_in_round(assignment);
  if (!is_added && std::ranges::count(nodes, assignment.node_index) != 1) {
    chance_.violate("places", "a node that the round leaves out got its assignment");
  }
}

void Invariants::trained(const std::string& job_uid, const Assignment& assignment) {
  const int64_t round = assignment.world.round;
  int64_t& newest = trained_[job_uid];
  if (round < newest) chance_.violate("I2", "an older round trains after a newer one");
  newest = std::max(newest, round);
}

void Invariants::ended(const Node& node) {
  ended_[node.job_uid][{node.state.round, node.state.hash}].insert(node.index);
}

void Invariants::check_plan(const plan::Observed& observed, const plan::Plan& plan) {
  constexpr size_t kFixed = 12, kPerPod = 3;
  const size_t pods = observed.pods.size() + static_cast<size_t>(observed.job.spec.nodes) +
                      plan::members_from_text(observed.job.status.members).size();
  if (plan.actions.size() > kFixed + kPerPod * pods) {
    chance_.violate("I10", "a plan has too many actions: " + std::to_string(plan.actions.size()));
  }
  for (const plan::Action& action : plan.actions) {
    const auto* write = std::get_if<plan::WriteStatus>(&action);
    if (write != nullptr) note_addresses(observed, write->status);
  }
}

// Remembers the addresses in the assignment of a round that the plan forms.
void Invariants::note_addresses(const plan::Observed& observed, const TrainingJobStatus& after) {
  const bool is_formed = !after.worldHash.empty() && after.rendezvous;
  if (!is_formed || after.worldHash == observed.job.status.worldHash) return;
  const std::vector<int64_t> members = plan::members_from_text(after.members);
  std::vector<std::string>& addresses = addresses_[after.worldHash];
  addresses.clear();
  for (const int64_t node : lockstep::round_members(*after.rendezvous, 1)) {
    const auto pod = std::ranges::find_if(observed.pods, [&](const plan::PodView& other) {
      return other.node_index == node && node < std::ssize(members) &&
             other.incarnation == members[static_cast<size_t>(node)];
    });
    addresses.push_back(pod == observed.pods.end() ? "" : pod->ip);
  }
}

void Invariants::check_leader(const loop::ApiRequest& request, std::string_view sender) {
  const auto& leases = store_.all(loop::kLeases);
  const std::string holder =
      leases.empty() ? ""
                     : string_or(member(*leases.begin()->second, "spec"), "holderIdentity", "");
  if (request.type.plural == loop::kLeases.plural) {
    const std::string next = string_or(member(request.body, "spec"), "holderIdentity", "");
    if (next != holder && !next.empty()) chance_.count(Transition::kLeader, next);
    if (next.empty() && !holder.empty()) chance_.count(Transition::kReleased, holder);
  } else if (!leases.empty() && holder != sender) {
    chance_.violate("I3", std::string(sender) + " wrote " + std::string(request.type.plural) +
                              " while " + holder + " led");
  }
}

// An event follows the status write that records it, and is sent once.
void Invariants::check_event(const Json& event) {
  constexpr int64_t kEventsOfAWriteMax = 4;
  const auto told = events_.find(uid_of_regarding(event));
  if (told == events_.end())
    return chance_.violate("events", "an event was sent before any status write");
  if (++told->second > kEventsOfAWriteMax) {
    chance_.violate("events",
                    "too many events for one status write: " + string_or(event, "reason", ""));
  }
}

void Invariants::check_pod(const Json& pod) {
  const std::optional<plan::PodView> view = plan::pod_view_from_json(pod);
  if (!view || !jobs_.contains(view->owner_uid)) {
    return chance_.violate("I4", "a pod was created for an unknown job");
  }
  chance_.count(Transition::kPodCreated, view->name);
  const Node* twin = nodes_.find(view->owner_uid, view->node_index, view->incarnation);
  if (twin != nullptr && twin->is_live) {
    chance_.violate("I1", "two live pods have the same incarnation: " + view->name);
  }
  const std::string job_name = string_or(pod["metadata"]["labels"], plan::kJobNameLabel, "");
  const Json* job = store_.find(loop::kTrainingJobs, "default/" + job_name);
  if (job == nullptr || uid_of(*job) != view->owner_uid) return;  // deleted meanwhile
  check_avoided(*job, pod);
  const auto deleted = deleted_at_.find(view->owner_uid);
  if (deleted != deleted_at_.end() && chance_.clock.now() - deleted->second > kNewsMax) {
    chance_.violate("deletion",
                    "a pod was created for a job that was deleted long ago: " + view->name);
  }
  const std::vector<int64_t> members = members_of(status_of(*job));
  const auto index = static_cast<size_t>(view->node_index);
  const bool is_shrunk = index >= members.size() && !members.empty();
  if (members.empty() || (!is_shrunk && members[index] < view->incarnation)) {
    chance_.violate("members", "a pod was created with an unrecorded incarnation: " + view->name);
  }
}

void Invariants::check_delete(const loop::ApiRequest& request, const Json& pod) {
  const std::optional<plan::PodView> view = plan::pod_view_from_json(pod);
  if (!view) return chance_.violate("I4", "a pod that belongs to no job was deleted");
  chance_.count(Transition::kPodRemoved, view->name);
  if (string_or(member(request.body, "preconditions"), "uid", "") != view->uid) {
    chance_.violate("I4", "a pod was deleted without its UID as precondition");
  }
  const Node* node = nodes_.find(view->owner_uid, view->node_index, view->incarnation);
  if (is_terminating(pod) && chance_.clock.now() - node->marked_at > kNewsMax) {
    chance_.violate("I10", "a pod that was deleted long ago was deleted again: " + view->name);
  }
  const std::string job_name = string_or(pod["metadata"]["labels"], plan::kJobNameLabel, "");
  const Json* job = store_.find(loop::kTrainingJobs, "default/" + job_name);
  if (job == nullptr || uid_of(*job) != view->owner_uid) return;
  const Json& status = status_of(*job);
  const std::vector<int64_t> members = members_of(status);
  const auto index = static_cast<size_t>(view->node_index);
  const bool is_member = index < members.size() && members[index] == view->incarnation;
  if (is_terminating(*job)) return;
  if (is_member && !is_finished(status) && !is_set(status, kSuspended)) {
    chance_.violate("members", "a member's pod was deleted: " + view->name);
  }
}

// A process failure recreates no pod, and a lost pod recreates no others.
void Invariants::check_members(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const std::vector<int64_t> old = members_of(before);
  const std::vector<int64_t> now = members_of(after);
  const bool resumes = is_set(before, kSuspended) && !is_set(after, kSuspended);
  // A node that is added again may reuse the index of a removed one.
  std::erase_if(pods_lost_[uid_of(job)],
                [&](const auto& pod) { return pod.first >= std::ssize(now); });
  for (size_t i = 0; i < std::min(old.size(), now.size()); ++i) {
    if (now[i] < old[i]) chance_.violate("members", "an incarnation decreased");
    if (now[i] == old[i] || resumes || stalls_ > 0) continue;
    const Node* node = nodes_.find(uid_of(job), static_cast<int64_t>(i), old[i]);
    if (node == nullptr || !node->is_live || node->is_silent) continue;
    if (waits_too_long(job, *node)) continue;
    if (is_unheard(*node)) continue;
    if (nodes_.sent_false_report(node->job_uid, node->index, node->incarnation)) continue;
    if (!is_to_be_replaced(job, after, static_cast<int64_t>(i))) {
      chance_.violate("members", "a healthy pod was replaced: " + node->key);
    }
  }
}

void Invariants::check_restarts(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const int64_t old = int_or(before, "restarts", 0);
  const int64_t now = int_or(after, "restarts", 0);
  if (now == old) return;
  if (now < old) chance_.violate("I6", "status.restarts decreased");
  if (now > old + 1) chance_.violate("I6", "one write counted two restarts");
  if (now > causes_[uid_of(job)] && stalls_ == 0) {
    chance_.violate("restarts", "more restarts than failures: " + std::to_string(now));
  }
  if (now > int_or(member(member(job, "spec"), "failure"), "maxRestarts", 10)) {
    chance_.violate("I6", "more restarts than maxRestarts allows");
  }
  if (restarts_in_place(after) &&
      string_or(before, "members", "") != string_or(after, "members", "")) {
    chance_.violate("members", "a restart in place changed the members");
  }
}

// A round that ends without a failure because a pod was stopped has saved its last step.
void Invariants::check_drain(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const auto is_drained = [](const Json& status) {
    return is_set(status, kRestarting) && reason_of(status, kRestarting) == plan::kDrained;
  };
  if (!is_drained(after) || is_drained(before)) return;
  chance_.count(Transition::kDrained);
  if (!nodes_.has_saved(uid_of(job), int_or(before, "round", 0))) {
    chance_.violate("drains", "a round ended as drained although a rank did not save");
  }
  if (int_or(after, "restarts", 0) != int_or(before, "restarts", 0)) {
    chance_.violate("drains", "a drain was counted as a restart");
  }
}

void Invariants::check_round(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  const int64_t round = int_or(after, "round", 0);
  const std::string hash = string_or(after, "worldHash", "");
  if (round < int_or(before, "round", 0)) chance_.violate("rounds", "the round number decreased");
  std::string& known = hashes_[uid_of(job)][round];
  if (!known.empty() && !hash.empty() && known != hash) {
    chance_.violate("rounds", "one round has two hashes");
  }
  if (!hash.empty()) known = hash;
  if (!hash.empty()) round_nodes_[uid_of(job)][round] = round_nodes(after);
  if (!hash.empty() && string_or(before, "worldHash", "") != hash) {
    formed_at_[uid_of(job)] = chance_.clock.now();
    check_images(job, after);
  }
  // A member's pod may be created twice under one name, at different addresses: it is lost after
  // its round formed, and a controller whose watch has not delivered that round replaces it.
  const std::string last = string_or(before, "worldHash", "");
  const auto is_same = [&](const char* key) { return member(before, key) == member(after, key); };
  const bool is_again = !hash.empty() && !last.empty() && round != int_or(before, "round", 0) &&
                        is_same("members") && is_same("rendezvous") && is_same("lastFailure") &&
                        addresses_[last] == addresses_[hash];
  if (is_again) chance_.violate("rounds", "a round was followed by the same one");
  const bool grows = members_of(after).size() > members_of(before).size();
  const bool is_given_up = hash.empty() && !string_or(before, "worldHash", "").empty();
  if (grows && is_given_up && !is_set(after, kSuspended)) {
    chance_.violate("rounds", "a round ended because members joined");
  }
  const int64_t observed = int_or(after, "observedGeneration", 0);
  if (observed > int_or(member(job, "metadata"), "generation", 0) ||
      observed < int_or(before, "observedGeneration", 0)) {
    chance_.violate("I7", "wrong observedGeneration: " + std::to_string(observed));
  }
}

// All ranks of a round run the same image, whichever controllers created their pods.
void Invariants::check_images(const Json& job, const Json& after) {
  const std::vector<int64_t> members = members_of(after);
  std::set<std::string> images;
  for (const int64_t i : round_nodes(after)) {
    if (i >= std::ssize(members)) continue;
    const Node* node = nodes_.find(uid_of(job), i, members[static_cast<size_t>(i)]);
    if (node != nullptr) images.insert(node->image);
  }
  if (images.size() > 1) {
    chance_.violate("images",
                    "one round runs two images: " + *images.begin() + " and " + *images.rbegin());
  }
}

void Invariants::check_end(const Json& job, const Json& after) {
  const Json& before = status_of(job);
  for (const char* type : {kComplete, kFailed}) {
    if (is_set(before, type) && !is_set(after, type)) {
      chance_.violate("terminal", std::string(type) + " became False again");
    }
  }
  const bool goes_on = int_or(after, "round", 0) != int_or(before, "round", 0) ||
                       string_or(after, "members", "") != string_or(before, "members", "");
  if (is_finished(before) && goes_on) chance_.violate("terminal", "a finished job continued");
  if (!is_set(after, kComplete)) return;
  if (is_set(after, kFailed)) chance_.violate("terminal", "a job is both Complete and Failed");
  if (!has_completed(job, after)) {
    chance_.violate("I5", "a job is Complete, but its round is not");
  }
}

bool Invariants::has_completed(const Json& job, const Json& after) const {
  const auto rounds = ended_.find(uid_of(job));
  if (rounds == ended_.end()) return false;
  const auto round =
      rounds->second.find({int_or(after, "round", 0), string_or(after, "worldHash", "")});
  if (round == rounds->second.end()) return false;
  const bool by_rank_zero = string_or(member(job, "spec"), "successPolicy", "") == kRankZero;
  const std::vector<int64_t> nodes = round_nodes(after);
  if (nodes.empty()) return false;
  const auto has_ended = [&](int64_t node) {
    return round->second.contains(node) || holds_nothing(job, after, node);
  };
  return by_rank_zero ? has_ended(nodes.front()) : std::ranges::all_of(nodes, has_ended);
}

// The first status write after an edit reflects the edit.
void Invariants::check_obedience(const Json& job, const Json& after) {
  if (is_terminating(job))
    chance_.violate("deletion", "a status was written for a job that is being deleted");
  const Json& spec = member(job, "spec");
  const bool wants_suspension = bool_or(spec, "suspend", false);
  const bool suspends = is_set(after, kSuspended) && !is_set(status_of(job), kSuspended);
  if (suspends && !wants_suspension)
    chance_.violate("suspension", "a job was suspended without spec.suspend");
  if (is_finished(after)) return;
  if (wants_suspension && !is_set(after, kSuspended)) {
    chance_.violate("suspension", "a job was not suspended despite spec.suspend");
  }
  check_validity(job, after);
}

void Invariants::checked(const std::string& job_uid, bool is_refused) {
  checked_.insert(job_uid);
  (is_refused ? refused_at_[job_uid] : accepted_at_.emplace()) = chance_.clock.now();
}

void Invariants::check_validity(const Json& job, const Json& after) {
  // The controller writes the server's verdict on a pod later, when the server may already decide
  // otherwise.
  const auto refusal = refused_at_.find(uid_of(job));
  const bool is_refused =
      refusal != refused_at_.end() && chance_.clock.now() - refusal->second < kNewsMax;
  const bool is_wrong = is_illegal(member(job, "spec"));
  if (is_set(after, kValid) ? is_wrong : !is_wrong && !is_refused) {
    chance_.violate("validation", "the condition Valid does not match the spec");
  }
  // The pods of all jobs are alike: a recently accepted one speaks for the others.
  const bool is_spoken_for = accepted_at_ && chance_.clock.now() - *accepted_at_ < kNewsMax;
  if (is_set(after, kValid) && int_or(after, "round", 0) == 0 && is_spoken_for) {
    checked_.insert(uid_of(job));
  }
  const bool is_unchecked =
      !checked_.contains(uid_of(job)) && chance_.counts.controllers_are_well();
  if (int_or(after, "round", 0) > 0 && is_unchecked) {
    chance_.violate("validation", "a round formed before the server checked a pod");
  }
}

// Counts nodes that were members of both rounds' jobs, but in one of the rounds alone.
void Invariants::count_nodes(const Json& before, const Json& after) {
  const std::vector<int64_t> old = round_nodes(before);
  const std::vector<int64_t> now = round_nodes(after);
  const auto both = std::min(std::ssize(members_of(before)), std::ssize(members_of(after)));
  for (int64_t node = 0; node < both && !old.empty() && !now.empty(); ++node) {
    const bool was_in = std::ranges::binary_search(old, node);
    const bool is_in = std::ranges::binary_search(now, node);
    if (was_in && !is_in) ++chance_.counts.left_out;
    if (is_in && !was_in) ++chance_.counts.came_back;
  }
}

void Invariants::count_transitions(const Json& before, const Json& after) {
  const auto flips = [&](const char* type, bool to) {
    return is_set(before, type) != to && is_set(after, type) == to;
  };
  if (flips(kComplete, true)) chance_.count(Transition::kComplete);
  if (flips(kFailed, true)) chance_.count(Transition::kFailed);
  if (flips(kSuspended, true)) chance_.count(Transition::kSuspended);
  if (flips(kSuspended, false)) chance_.count(Transition::kResumed);
  if (flips(kValid, false)) chance_.count(Transition::kInvalid);
  if (!before.empty() && flips(kValid, true)) chance_.count(Transition::kValidAgain);
  if (is_set(before, kRestarting) && is_set(after, kRunning)) {
    chance_.count(Transition::kRecovered);
  }
  if (int_or(after, "restarts", 0) > int_or(before, "restarts", 0)) {
    chance_.count(restarts_in_place(after) ? Transition::kRestartInPlace
                                           : Transition::kRecreatePod);
  }
  const bool by_rank_zero = reason_of(after, kComplete) == "RankZeroCompleted";
  if (flips(kComplete, true) && by_rank_zero) chance_.count(Transition::kCompleteByRankZero);
  if (int_or(after, "round", 0) > int_or(before, "round", 0)) {
    chance_.count(Transition::kRoundFormed);
    count_nodes(before, after);
  }
  const size_t size = members_of(before).size();
  if (size > 0 && members_of(after).size() != size) chance_.count(Transition::kResized);
}

void Invariants::check_status(const Json& job, const Json& after) {
  if (status_of(job) == after) chance_.violate("I10", "a status write changed nothing");
  chance_.note("status", string_or(after, "state", ""));
  count_transitions(status_of(job), after);
  check_members(job, after);
  check_failure(job, after);
  check_restarts(job, after);
  check_drain(job, after);
  check_round(job, after);
  check_end(job, after);
  check_deadline(job, after);
  check_obedience(job, after);
  check_stragglers(job, after);
  check_losses(job, after);
  check_servers(job, after);
  check_numbers(after);
}

void Invariants::check_write(const loop::ApiRequest& request, const Json* stored,
                             std::string_view sender) {
  chance_.note("write", request.type.plural);
  check_leader(request, sender);
  if (request.type.plural == loop::kEvents.plural) check_event(request.body);
  const bool is_pod = request.type.plural == loop::kPods.plural;
  if (is_pod && request.verb == loop::ApiVerb::kCreate) check_pod(request.body);
  if (is_pod && request.verb == loop::ApiVerb::kDelete) check_delete(request, *stored);
  const bool is_job = request.type.plural == loop::kTrainingJobs.plural;
  if (is_job && request.verb == loop::ApiVerb::kDelete) check_expiry(request, *stored);
  if (request.verb == loop::ApiVerb::kReplaceStatus) {
    check_status(*stored, member(request.body, "status"));
    events_[uid_of(*stored)] = 0;
  }
}

}  // namespace lockstep::sim
