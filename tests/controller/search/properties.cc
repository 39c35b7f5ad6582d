#include "tests/controller/search/properties.h"

#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/members.h"
#include "controller/plan/pod_view.h"

namespace lockstep::search {
namespace {

using sim::member;
using Status = TrainingJobStatus;

std::vector<int64_t> members_of(const Status& status) {
  return plan::members_from_text(status.members);
}

std::string hash_of_round(const World& world, int64_t round) {
  const auto record = world.history.rounds.find(round);
  return record == world.history.rounds.end() ? "" : record->second.hash;
}

bool is_new_failure(const Status& before, const Status& after) {
  if (!after.lastFailure) return false;
  return !before.lastFailure || before.lastFailure->number != after.lastFailure->number;
}

const plan::PodView* pod_of(const World& world, int64_t index, int64_t incarnation) {
  for (const auto& [key, pod] : world.pods) {
    if (pod->pod->node_index == index && pod->pod->incarnation == incarnation) return &*pod->pod;
  }
  return nullptr;
}

bool is_healthy(const World& world, int64_t index, int64_t incarnation) {
  const plan::PodView* pod = pod_of(world, index, incarnation);
  return pod != nullptr && pod->live() && !world.lost_pods.contains(pod->uid);
}

void check_new_pod(World& world, const Json& body) {
  const std::optional<plan::PodView> pod = plan::pod_view_from_json(body);
  if (!pod || pod->owner_uid.empty()) return world.violate("I4: a pod was created for no job");
  const plan::PodView* twin = pod_of(world, pod->node_index, pod->incarnation);
  if (twin != nullptr && twin->live()) {
    world.violate("I1: two live pods have the same incarnation: " + pod->name);
  }
  if (world.job == nullptr || world.job->uid != pod->owner_uid) return;
  const std::vector<int64_t> members = members_of(world.job->job.status);
  const auto index = static_cast<size_t>(pod->node_index);
  if (members.empty() || (index < members.size() && members[index] < pod->incarnation)) {
    world.violate("members: a pod was created with an unrecorded incarnation: " + pod->name);
  }
}

void check_deleted_pod(World& world, const loop::ApiRequest& request, const Json& stored) {
  const std::optional<plan::PodView> pod = plan::pod_view_from_json(stored);
  if (!pod) return world.violate("I4: a pod that belongs to no job was deleted");
  if (string_or(member(request.body, "preconditions"), "uid", "") != pod->uid) {
    world.violate("I4: a pod was deleted without its UID as precondition");
  }
  if (world.job == nullptr || world.job->uid != pod->owner_uid) return;
  const Status& status = world.job->job.status;
  const std::vector<int64_t> members = members_of(status);
  const auto index = static_cast<size_t>(pod->node_index);
  const bool is_member = index < members.size() && members[index] == pod->incarnation;
  if (is_member && !is_finished(status) && !is_true(status, kSuspended)) {
    world.violate("members: a member's pod was deleted: " + pod->name);
  }
}

// Returns whether a pod of that name had been there before the one that is there, which the writer
// of a status does not know.
bool is_unknown_twin(const World& world, int64_t index, int64_t incarnation, bool is_stray) {
  const plan::PodView* pod = pod_of(world, index, incarnation);
  const std::string key = "default/" + pod->name;
  const auto births = world.births.find(key);
  if (births == world.births.end() || births->second < 2) return false;
  const auto known = world.process.pods.find(key);
  return is_stray || known == world.process.pods.end() || known->second->uid != pod->uid;
}

void check_members(World& world, const Status& before, const Status& after, bool is_stray) {
  const std::vector<int64_t> old = members_of(before);
  const std::vector<int64_t> now = members_of(after);
  std::erase_if(world.history.pods_counted,
                [&](const auto& pod) { return pod.first >= std::ssize(now); });
  const bool resumes = is_true(before, kSuspended) && !is_true(after, kSuspended);
  for (size_t i = 0; i < std::min(old.size(), now.size()); ++i) {
    if (now[i] < old[i]) world.violate("members: an incarnation decreased");
    if (now[i] == old[i] || resumes) continue;
    const auto index = static_cast<int64_t>(i);
    if (!is_healthy(world, index, old[i])) continue;
    // A dead controller's request makes a lost pod again, or another controller does, and writes no
    // status for that. So the write that replaces the lost one may still arrive.
    if (!is_unknown_twin(world, index, old[i], is_stray)) {
      world.violate("members: a healthy pod was replaced: node " + std::to_string(i));
    }
  }
}

// A failure is recorded once, for a member, and a rank that is said to have failed did.
void check_failure(World& world, const Status& before, const Status& after) {
  if (!is_new_failure(before, after)) return;
  const FailureStatus& failure = *after.lastFailure;
  const std::vector<int64_t> members = members_of(before);
  const auto index = static_cast<size_t>(failure.nodeIndex);
  if (failure.round != before.round || index >= members.size()) {
    return world.violate("restarts: a failure of another round, or of no member, was recorded");
  }
  RoundRecord& round = world.history.rounds[failure.round];
  const std::pair<int64_t, int64_t> pod{failure.nodeIndex, members[index]};
  const bool counts = after.restarts > before.restarts;
  const bool is_counted =
      before.worldHash.empty() ? world.history.pods_counted.contains(pod) : round.is_counted;
  if (counts && is_counted) world.violate("restarts: a failure was counted twice");
  if (counts && before.worldHash.empty()) world.history.pods_counted.insert(pod);
  if (counts && !before.worldHash.empty()) round.is_counted = true;
  const bool is_of_rank = failure.rank >= 0 && failure.reason != "Suspected";
  if (is_of_rank && !round.failed.contains(pod)) {
    world.violate("restarts: a worker's failure was recorded that did not happen");
  }
}

void check_restarts(World& world, const Status& before, const Status& after) {
  if (after.restarts == before.restarts) return;
  if (after.restarts < before.restarts) world.violate("I6: status.restarts decreased");
  if (after.restarts > before.restarts + 1) world.violate("I6: one write counted two restarts");
  if (after.restarts > world.history.causes) {
    world.violate("restarts: more restarts than failures: " + std::to_string(after.restarts));
  }
  const bool is_in_place = after.lastFailure && after.lastFailure->action == "RestartInPlace";
  if (is_in_place && before.members != after.members) {
    world.violate("members: a restart in place changed the members");
  }
}

void check_round(World& world, const Status& before, const Status& after) {
  if (after.round < before.round) world.violate("rounds: the round number decreased");
  if (!after.worldHash.empty()) {
    std::string& known = world.history.rounds[after.round].hash;
    if (!known.empty() && known != after.worldHash) {
      world.violate("rounds: one round has two hashes");
    }
    known = after.worldHash;
  }
  const bool is_again = !after.worldHash.empty() && !before.worldHash.empty() &&
                        after.round != before.round && before.members == after.members &&
                        before.rendezvous == after.rendezvous &&
                        before.lastFailure == after.lastFailure;
  if (is_again) world.violate("rounds: a round was followed by the same one");
  const bool grows = members_of(after).size() > members_of(before).size();
  const bool is_given_up = after.worldHash.empty() && !before.worldHash.empty();
  if (grows && is_given_up && !is_true(after, kSuspended)) {
    world.violate("rounds: a round ended because members joined");
  }
}

void check_end(World& world, const Status& before, const Status& after) {
  for (const char* type : {kComplete, kFailed}) {
    if (is_true(before, type) && !is_true(after, type)) {
      world.violate(std::string("terminal: ") + type + " became False again");
    }
  }
  const bool goes_on = after.round != before.round || after.members != before.members;
  if (is_finished(before) && goes_on) world.violate("terminal: a finished job continued");
  if (is_true(after, kFailed)) {
    world.violate("terminal: a job failed that had restarts left");
  }
  if (!is_true(after, kComplete) || is_true(before, kComplete)) return;
  const auto round = world.history.rounds.find(after.round);
  // A member that users have added since the round began is not of it.
  const auto nodes = static_cast<size_t>(after.rendezvous ? after.rendezvous->worldSize : 0);
  const bool has_ended = round != world.history.rounds.end() &&
                         round->second.hash == after.worldHash && nodes > 0 &&
                         round->second.ended.size() >= nodes;
  if (!has_ended) world.violate("I5: a job is Complete, but its round is not");
}

void check_obedience(World& world, const Document& job, const Status& before, const Status& after) {
  const bool wants = job.job.spec.suspend;
  const bool suspends = is_true(after, kSuspended) && !is_true(before, kSuspended);
  if (suspends && !wants) world.violate("suspension: a job was suspended without spec.suspend");
  if (wants && !is_finished(after) && !is_true(after, kSuspended)) {
    world.violate("suspension: a job was not suspended despite spec.suspend");
  }
  if (!is_true(after, kValid) && !is_finished(after)) {
    world.violate("validation: the condition Valid does not match the spec");
  }
  if (after.observedGeneration > job.job.metadata.generation ||
      after.observedGeneration < before.observedGeneration) {
    world.violate("I7: wrong observedGeneration");
  }
}

}  // namespace

void check_request(World& world, const loop::ApiRequest& request, const Json* stored) {
  if (request.type.plural != loop::kPods.plural) return;
  if (request.verb == loop::ApiVerb::kCreate) check_new_pod(world, request.body);
  if (request.verb == loop::ApiVerb::kDelete) check_deleted_pod(world, request, *stored);
}

void check_status(World& world, const Document& before, const Document& after, bool is_stray) {
  if (before.version == after.version) {
    return world.violate("I10: a status write changed nothing");
  }
  const Status& old = before.job.status;
  const Status& now = after.job.status;
  check_members(world, old, now, is_stray);
  check_failure(world, old, now);
  check_restarts(world, old, now);
  check_round(world, old, now);
  check_end(world, old, now);
  check_obedience(world, before, old, now);
}

void check_assignment(World& world, const Assignment& assignment) {
  if (hash_of_round(world, assignment.world.round) != assignment.hash) {
    world.violate("rounds: an agent was assigned a round that status does not record");
  }
  const auto& members = assignment.world.members;
  const bool is_in = std::ranges::any_of(
      members, [&](const WorldMember& member) { return member.index == assignment.node_index; });
  if (!is_in) world.violate("places: a node that the round leaves out got its assignment");
}

void check_training(World& world, int64_t round) {
  if (round < world.history.trained) {
    world.violate("I2: an older round trains after a newer one");
  }
  world.history.trained = std::max(world.history.trained, round);
}

}  // namespace lockstep::search
