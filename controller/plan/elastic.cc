#include "controller/plan/elastic.h"

#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/pod_failure.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/silence.h"

namespace lockstep::plan {
namespace {

using Nodes = std::vector<int64_t>;

// How often a job that waits for pods looks again.
constexpr Duration kRecheck = std::chrono::seconds(5);

// Returns the most nodes, at most `most`, with which the job can train; 0: there is no such number.
int64_t largest_world(const Pass& pass, int64_t most) {
  for (int64_t nodes = most; nodes >= pass.spec().elastic->min; --nodes) {
    if (can_train(pass, nodes)) return nodes;
  }
  return 0;
}

// Returns the version of the protocol in which agents know rounds that leave out nodes and, with
// train, whose ranks share a batch unevenly.
int64_t version_needed(const Pass& pass) {
  return pass.spec().train ? kProtocolWithUnevenBatches : kProtocolWithLayouts;
}

bool is_too_old(const Pass& pass, const PodView* pod) {
  const AgentView* agent = pass.agent(pod);
  return agent != nullptr && agent->state && agent->state->protocol < version_needed(pass);
}

bool has_answered(const Pass& pass, const PodView* pod) {
  const AgentView* agent = pass.agent(pod);
  return agent != nullptr && agent->state != nullptr;
}

// Returns whether the pod runs, and has been in the last round or an earlier one.
bool survives(const Pass& pass, const PodView* pod) {
  const AgentState* state = runs(pod) ? pass.last_report(pod) : nullptr;
  return state != nullptr && state->round > 0;
}

// Returns until when a pod that does not run may be starting normally; nullopt: it runs, ends, has
// no room, or is in trouble.
std::optional<TimePoint> starts_until(const Pass& pass, const PodView* pod) {
  if (pod == nullptr) {
    return pass.seen.refusal ? std::nullopt : std::optional(pass.now + kRecheck);
  }
  const bool starts = pod->serves() && !runs(pod) && pod->unscheduled_reason.empty() &&
                      start_trouble(*pod) == nullptr;
  if (!starts) return std::nullopt;
  return pod->seen_at ? *pod->seen_at + pass.limits.elastic_start_wait : pass.now + kRecheck;
}

bool any_is_starting(const Pass& pass) {
  return std::ranges::any_of(pass.current, [&](const PodView* pod) {
    const std::optional<TimePoint> until = starts_until(pass, pod);
    return until && pass.now < *until;
  });
}

// Returns the nodes whose pods run and fulfil the condition.
template <class Condition>
Nodes running(const Pass& pass, const Condition& condition) {
  Nodes nodes;
  for (const int64_t node : all_members(pass)) {
    const PodView* pod = pass.current[static_cast<size_t>(node)];
    if (runs(pod) && condition(*pod)) nodes.push_back(node);
  }
  return nodes;
}

// Returns `count` nodes: all of `first`, then the lowest of `others`.
Nodes fill(const Nodes& first, const Nodes& others, int64_t count) {
  Nodes nodes = first;
  for (const int64_t node : others) {
    if (std::ssize(nodes) >= count) break;
    if (!std::ranges::binary_search(first, node)) nodes.push_back(node);
  }
  std::ranges::sort(nodes);
  return nodes;
}

// Returns the place in `nodes` of the one that the next round can best do without. A node keeps the
// copy of the state of the one before it in the circle of all members. So a node can go if the one
// after it stays, and the one before it has not gone: then nothing is lost. Otherwise the last one.
size_t dispensable(const Pass& pass, const Nodes& nodes) {
  const int64_t members = std::ssize(pass.members);
  const auto stays = [&](int64_t node) {
    return std::ranges::binary_search(nodes, (node + members) % members);
  };
  for (size_t i = nodes.size(); i-- > 0;) {
    if (stays(nodes[i] + 1) && stays(nodes[i] - 1)) return i;
  }
  return nodes.size() - 1;
}

// Returns `count` of these nodes: survivors first, without losing the only copy of a state if that
// can be avoided.
Nodes best(const Pass& pass, const Nodes& those, int64_t count) {
  Nodes survivors;
  for (const int64_t node : those) {
    if (survives(pass, pass.current[static_cast<size_t>(node)])) survivors.push_back(node);
  }
  while (std::ssize(survivors) > count) {
    survivors.erase(survivors.begin() + static_cast<int64_t>(dispensable(pass, survivors)));
  }
  return fill(survivors, those, count);
}

// The round goes on unless a larger one can begin.
Nodes grown(const Pass& pass, const Nodes& now) {
  if (now.size() == pass.members.size() || any_is_starting(pass)) return now;
  const Nodes those = running(
      pass, [&](const PodView& pod) { return has_answered(pass, &pod) && !is_unheard(pass, pod); });
  const Nodes all = fill(now, those, std::ssize(pass.members));
  if (all.size() == now.size()) return now;
  const int64_t most = largest_world(pass, std::ssize(all));
  return most > std::ssize(now) ? fill(now, those, most) : now;
}

// Waits for pods where no world is possible with those that run.
Nodes gathered(const Pass& pass) {
  const bool any_survives =
      std::ranges::any_of(pass.current, [&](const PodView* pod) { return survives(pass, pod); });
  // Survivors do not wait for the others, nor for agents that do not answer.
  const Nodes those = running(pass, [&](const PodView& pod) {
    return !is_unheard(pass, pod) && (!any_survives || has_answered(pass, &pod));
  });
  const bool waits = !any_survives && any_is_starting(pass);
  const int64_t possible = waits ? 0 : largest_world(pass, std::ssize(those));
  return possible > 0 ? best(pass, those, possible) : all_members(pass);
}

}  // namespace

bool can_train(const Pass& pass, int64_t nodes) {
  TrainingJob job{.metadata = pass.job().metadata, .spec = pass.spec(), .status = {}};
  job.spec.nodes = nodes;
  job.spec.podTemplate = Json::object();  // it says nothing about nodes
  return validate(job).empty();
}

void requeue_for_choice(Pass& pass) {
  if (!pass.spec().elastic) return;
  for (const PodView* pod : pass.current) {
    const std::optional<TimePoint> until = starts_until(pass, pod);
    if (until && pass.now < *until) pass.requeue(*until);
  }
  if (!pass.formed()) pass.requeue(pass.now + kRecheck);
}

std::vector<int64_t> elastic_nodes(const Pass& pass) {
  if (is_finished(pass.status)) return all_members(pass);
  const bool any_is_too_old =
      std::ranges::any_of(pass.current, [&](const PodView* pod) { return is_too_old(pass, pod); });
  if (any_is_too_old) return all_members(pass);
  if (pass.formed() && !pass.round_nodes.empty()) return grown(pass, pass.round_nodes);
  Nodes nodes = gathered(pass);
  const bool all_have_answered = std::ranges::all_of(
      pass.pods_of(nodes), [&](const PodView* pod) { return has_answered(pass, pod); });
  return all_have_answered ? nodes : all_members(pass);
}

}  // namespace lockstep::plan
