#include "controller/plan/plan.h"

#include <algorithm>

#include "common/base/check.h"
#include "controller/plan/conditions.h"
#include "controller/plan/draining.h"
#include "controller/plan/members.h"
#include "controller/plan/pass.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/world.h"

namespace lockstep::plan {
namespace {

constexpr Policy kPolicies[] = {deletion, ending,     completion, validation, suspension,
                                deadline, membership, warning,    draining,   failure,
                                servers,  views,      network,    placement,  assignment};

// Undoes changes of a message alone: while a condition stays the same, its message only reports how
// far things are.
void restore_messages(const TrainingJobStatus& before, TrainingJobStatus& after) {
  for (const char* type : {kReady, kPodsScheduled, kCheckpointFailing, kNetworkPolicyFailing}) {
    const Condition* old = find_condition(before, type);
    for (Condition& condition : after.conditions) {
      const bool is_same = old != nullptr && condition.type == type &&
                           condition.status == old->status && condition.reason == old->reason;
      if (is_same) condition.message = old->message;
    }
  }
}

// Returns whether only numbers for people have changed: training progress, memory, and how many
// pods run. The checkpoint that ranks save while they drain is none of them: nobody may tell it
// again.
bool differs_in_numbers_alone(const TrainingJobStatus& before, TrainingJobStatus after) {
  after.progress = before.progress;
  after.holdings = before.holdings;
  if (!is_true(after, kDraining)) after.lastCheckpoint = before.lastCheckpoint;
  after.nodes.ready = before.nodes.ready;
  if (before.servers && after.servers) after.servers->ready = before.servers->ready;
  restore_messages(before, after);
  return after == before;
}

void write_status(Pass& pass) {
  const TrainingJobStatus& before = pass.seen.job.status;
  if (pass.status == before) return;
  const bool progress_only = differs_in_numbers_alone(before, pass.status);
  if (progress_only && !pass.seen.may_write_progress) {
    pass.requeue(pass.seen.progress_writable_at);
    return;
  }
  pass.act(WriteStatus{.status = pass.status,
                       .resource_version = pass.job().metadata.resourceVersion,
                       .progress_only = progress_only});
}

const AgentView* find_agent(const Observed& seen, const PodView& pod) {
  const auto found = seen.agents.find(pod.uid);
  return found == seen.agents.end() ? nullptr : &found->second;
}

}  // namespace

// Policies ask for the agents of all members many times.
const AgentView* Pass::agent(const PodView* pod) const {
  if (pod == nullptr) return nullptr;
  const auto index = static_cast<size_t>(pod->node_index);
  const bool is_member = index < agents.size() && index < current.size() && current[index] == pod;
  return is_member ? agents[index] : find_agent(seen, *pod);
}

const AgentState* Pass::last_report(const PodView* pod) const {
  const AgentView* view = agent(pod);
  const bool is_ours = view != nullptr && view->state && view->state->job_uid == job().metadata.uid;
  return is_ours ? &*view->state : nullptr;
}

const AgentState* Pass::current_report(const PodView* pod) const {
  const AgentState* state = last_report(pod);
  const bool is_current = state != nullptr && formed() && state->round == status.round &&
                          state->hash == status.worldHash;
  return is_current ? state : nullptr;
}

const AgentState* Pass::report_of_round(const PodView* pod) const {
  if (!is_true(status, kSuspended)) return current_report(pod);
  const AgentState* state = last_report(pod);
  return state != nullptr && state->round == status.round ? state : nullptr;
}

std::optional<RoundBeginning> Pass::slowest_beginning() const {
  RoundBeginning slowest;
  for (const PodView* pod : in_round()) {
    const AgentState* state = current_report(pod);
    if (state == nullptr || !state->beginning) return std::nullopt;
    slowest.abort_seconds = std::max(slowest.abort_seconds, state->beginning->abort_seconds);
    slowest.start_seconds = std::max(slowest.start_seconds, state->beginning->start_seconds);
  }
  return slowest;
}

bool has_completed(const AgentState& state) {
  if (state.phase == "Completed") return true;
  if (state.workers.empty()) return false;
  return std::all_of(state.workers.begin(), state.workers.end(), [](const WorkerState& worker) {
    return !worker.running && worker.reason == "Completed";
  });
}

void Pass::requeue(TimePoint at) {
  if (!plan.requeue_at || at < *plan.requeue_at) plan.requeue_at = at;
}

int64_t Pass::node_of_rank(int64_t rank) const {
  if (rank < 0) return -1;
  const auto place = static_cast<size_t>(place_of_rank(rank, processes_per_node(spec())));
  return place < round_nodes.size() ? round_nodes[place] : -1;
}

namespace {

// The agent of a terminating pod is worth listening to as long as its ranks may save.
bool is_watched(const Pass& pass, const PodView& pod) {
  const bool ends = pod.finished() || pod.exit_code;
  const bool may_save =
      (pass.formed() || is_true(pass.status, kSuspended)) && stores_checkpoints(pass.spec());
  const bool serves = pod.serves() || (!ends && may_save);
  return serves && pod.phase == "Running" && !pod.ip.empty();
}

// An edit that is refused may give a node another role, so either name will do.
bool has_name_of_member(const TrainingJob& job, const PodView& pod) {
  const auto has_name = [&](MemberRole role) {
    return pod.name == pod_name(job.metadata.name, role, pod.node_index, pod.incarnation);
  };
  return has_name(MemberRole::kWorker) || has_name(MemberRole::kServer);
}

}  // namespace

Pass make_pass(const Observed& observed, TimePoint now, const Limits& limits, RoundChoice choose) {
  Pass pass{.seen = observed, .now = now, .limits = limits, .choose = choose};
  pass.status = observed.job.status;
  pass.members = members_from_text(pass.status.members);
  pass.current.resize(pass.members.size(), nullptr);
  pass.agents.resize(pass.members.size(), nullptr);
  for (const PodView& pod : observed.pods) {
    if (pod.node_index < 0 || pod.node_index >= static_cast<int64_t>(pass.members.size())) continue;
    const auto index = static_cast<size_t>(pod.node_index);
    if (pod.incarnation != pass.members[index]) continue;
    // Somebody may have given this job a pod of another one.
    if (!has_name_of_member(observed.job, pod)) continue;
    pass.current[index] = &pod;
  }
  for (size_t index = 0; index < pass.current.size(); ++index) {
    const PodView* pod = pass.current[index];
    if (pod == nullptr) continue;
    pass.agents[index] = find_agent(observed, *pod);
    if (is_watched(pass, *pod)) pass.plan.watch.push_back(target_of(*pod));
  }
  pass.round_nodes = nodes_of_round(pass);
  return pass;
}

std::span<const Policy> all_policies() {
  return kPolicies;
}

Plan plan(const Observed& observed, TimePoint now, const Limits& limits) {
  return plan_by(kPolicies, observed, now, limits);
}

Plan plan_by(std::span<const Policy> policies, const Observed& observed, TimePoint now,
             const Limits& limits, RoundChoice choose) {
  Pass pass = make_pass(observed, now, limits, choose);
  Verdict verdict = Verdict::kNext;
  for (const Policy policy : policies) {
    verdict = policy(pass);
    if (verdict != Verdict::kNext) break;
  }
  if (verdict == Verdict::kLeave) return std::move(pass.plan);
  if (verdict == Verdict::kDecided) CHECK(pass.plan.actions.empty());
  derive_status(pass);
  write_status(pass);
  for (EmitEvent& event : pass.events) pass.act(std::move(event));
  return std::move(pass.plan);
}

}  // namespace lockstep::plan
