#include <algorithm>
#include <set>

#include "controller/plan/backoff.h"
#include "controller/plan/conditions.h"
#include "controller/plan/elastic.h"
#include "controller/plan/ledger.h"
#include "controller/plan/pass.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/servers.h"
#include "controller/plan/silence.h"
#include "controller/plan/world.h"

namespace lockstep::plan {
namespace {

// Ranks are node-major, so the ranks of a tensor group are neighbours.
void warn_of_spread(Pass& pass, int64_t round) {
  const TrainingJobSpec& spec = pass.spec();
  const int64_t tensor = spec.parallelism.tensor;
  const int64_t processes = processes_per_node(spec);
  if (round > 1 || !spec.train || processes % tensor == 0) return;
  pass.event(true, "TensorSpread",
             "spec.parallelism.tensor: " + std::to_string(tensor) +
                 " ranks share every layer, but " + std::to_string(processes) +
                 " run on a node, so every layer waits for the network: a spec.processesPerNode "
                 "that it divides keeps them together");
}

Verdict start_round(Pass& pass, int64_t round, const char* why) {
  begin_round(pass, round);
  pass.plan.why = why;
  if (pass.formed()) {
    note_pods(pass.status, pass.seen.wall_now);
    warn_of_spread(pass, round);
    const std::string& nodes = pass.status.rendezvous->nodeIndices;
    pass.event(false, "RoundStarted",
               "round " + std::to_string(round) + " with members " + pass.status.members +
                   (nodes.empty() ? "" : ", of which nodes " + nodes + " take part"));
  }
  return Verdict::kDecided;
}

// Whether agents that have not answered yet may know more about servers than the oldest ones. One
// that does not answer in time counts as silent.
bool awaits_answers(Pass& pass) {
  if (!pass.spec().parameterServers) return false;
  for (const PodView* pod : pass.in_round()) {
    const AgentView* agent = pass.agent(pod);
    const bool has_said_it = agent != nullptr && (agent->state || agent->refuses_token ||
                                                  agent->has_unsupported_protocol());
    if (has_said_it) continue;
    if (agent != nullptr && is_unheard(pass, *pod)) continue;
    if (agent != nullptr) pass.requeue(silent_at(pass, *pod, healthy_silence_limit(pass)));
    return true;
  }
  return false;
}

Verdict form(Pass& pass) {
  if (!can_begin(pass, pass.round_nodes)) {
    pass.plan.why = "waiting for all pods to run, or for agents that may run an older round";
    requeue_for_silence(pass, pass.round_nodes);
    return Verdict::kNext;
  }
  if (awaits_answers(pass)) {
    pass.plan.why = "waiting for agents to say what they know about servers";
    return Verdict::kNext;
  }
  return start_round(pass, next_round(pass), "all pods run and have an address");
}

// A worker that is started anew in its round backs off as one that begins another round.
bool worker_backs_off(Pass& pass) {
  const auto& last = pass.status.lastFailure;
  return last && misses_worker(pass) && must_back_off(pass, *last);
}

// A restart in place backs off for as long as one with new pods.
bool is_backing_off(Pass& pass) {
  const auto& last = pass.status.lastFailure;
  const bool follows = last && last->round < pass.status.round &&
                       last->action == "RestartInPlace" && is_true(pass.status, kRestarting);
  return (follows && must_back_off(pass, *last)) || worker_backs_off(pass);
}

// If one of them may not, the others would wait for it in vain. Nobody waits for a server that is
// gone.
bool all_may_be_sent(const Pass& pass, const WorldAssignment& world) {
  const int64_t protocol = protocol_of_world(pass, world);
  return std::ranges::all_of(counted_pods(pass), [&](const PodView* pod) {
    return may_be_sent(pass.agent(pod), protocol);
  });
}

// Sends the assignment to all of them that can use it now. An agent that does not answer would keep
// the job from its next plan, which may give up that agent's pod, until the request's deadline.
void send(Pass& pass, const std::vector<const PodView*>& pods, Assignment assignment) {
  constexpr Duration kUnheardRecheck = std::chrono::seconds(1);
  const auto all = std::make_shared<const Assignment>(std::move(assignment));
  const int64_t protocol = protocol_of_world(pass, all->world);
  for (const PodView* pod : pods) {
    const AgentView* agent = pass.agent(pod);
    const bool is_unusable =
        agent != nullptr && (agent->has_unsupported_protocol() || agent->refuses_token ||
                             !may_be_sent(agent, protocol));
    if (!pod->serves() || is_unusable) continue;
    if (is_unheard(pass, *pod)) {
      pass.requeue(pass.now + kUnheardRecheck);
      continue;
    }
    pass.act(
        PutAssignment{.target = target_of(*pod), .assignment = all, .node_index = pod->node_index});
  }
}

// Returns the pods whose agents lack the round's assignment, or its newest view of the servers.
std::vector<const PodView*> pods_behind(const Pass& pass) {
  const int64_t view = has_views(pass) ? servers_view(pass).number : 0;
  const std::set<int64_t> without_pods = nodes_without_pods(pass);
  std::vector<const PodView*> behind;
  for (const int64_t node : pass.round_nodes) {
    const PodView* pod = pass.current[static_cast<size_t>(node)];
    if (pod == nullptr || without_pods.contains(node)) continue;
    const AgentState* state = pass.last_report(pod);
    const bool is_behind = state == nullptr || state->round < pass.status.round ||
                           (state->round == pass.status.round && state->servers_view < view);
    if (is_behind) behind.push_back(pod);
  }
  return behind;
}

}  // namespace

// No pod of a lost server is stopped before the others know that it is gone: a server that is told
// to stop asks the ranks that still listen to it to leave. A worker that fails again and again is
// started later each time.
Verdict views(Pass& pass) {
  if (!has_views(pass) || servers_view(pass).number == 1) return Verdict::kNext;
  if (worker_backs_off(pass)) return Verdict::kNext;
  const std::vector<const PodView*> behind = pods_behind(pass);
  const auto is_in_it = [&](const PodView* pod) { return pass.current_report(pod) != nullptr; };
  if (std::ranges::none_of(behind, is_in_it)) return Verdict::kNext;
  Result<WorldAssignment> world = world_of(pass, pass.status.round);
  const bool is_known = world.ok() && world_hash(*world) == pass.status.worldHash;
  if (!is_known || !all_may_be_sent(pass, *world)) return Verdict::kNext;
  send(pass, behind, assignment_of(pass, std::move(world).value(), "Run"));
  if (pass.plan.actions.empty()) return Verdict::kNext;
  pass.plan.why = "agents must learn which processes count";
  return Verdict::kActed;
}

Verdict assignment(Pass& pass) {
  requeue_for_choice(pass);
  if (!pass.formed()) return form(pass);
  const std::vector<int64_t> wanted = wanted_nodes(pass);
  const bool takes_them_in = has_places(pass) && has_views(pass);  // and lets them leave
  if (wanted != pass.round_nodes && !takes_them_in && can_begin(pass, wanted)) {
    return start_round(pass, next_round(pass), "all members that the round is to have run");
  }
  Result<WorldAssignment> world = world_of(pass, pass.status.round);
  if (!world.ok()) {
    pass.plan.why = "a member's pod has no address";
    return Verdict::kNext;
  }
  const std::string hash = world_hash(*world);
  if (hash != pass.status.worldHash) {
    return start_round(pass, next_round(pass), "the round's assignment has changed");
  }
  const std::vector<const PodView*> behind = pods_behind(pass);
  if (behind.empty()) {
    pass.plan.why = "all agents have their assignment";
    return Verdict::kNext;
  }
  if (!all_may_be_sent(pass, *world)) {
    pass.plan.why = "an agent has not answered yet, or is too old for the round's world";
    return Verdict::kNext;
  }
  pass.plan.why = "agents must receive the round's assignment";
  if (is_backing_off(pass)) return Verdict::kNext;
  send(pass, behind, assignment_of(pass, std::move(world).value(), "Run"));
  return Verdict::kActed;
}

}  // namespace lockstep::plan
