#include "tests/controller/sim/round_choices.h"

#include <algorithm>
#include <map>

#include "controller/plan/conditions.h"
#include "controller/plan/round_nodes.h"

namespace lockstep::sim {
namespace {

constexpr Duration kEpoch = std::chrono::seconds(20);

// Source: Steele et al., "Fast splittable pseudorandom number generators", 2014 (the finalizer of
// SplitMix64).
uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

uint64_t number_of(std::string_view text) {
  uint64_t number = 1;
  for (const char c : text) number = mixed(number * 31 + static_cast<uint64_t>(c));
  return number;
}

void add(int64_t node, std::vector<int64_t>& nodes) {
  const auto at = std::lower_bound(nodes.begin(), nodes.end(), node);
  if (at == nodes.end() || *at != node) nodes.insert(at, node);
}

// Adds one of these to the nodes if they have none.
void add_one_of(const std::vector<int64_t>& those, std::vector<int64_t>& nodes) {
  const auto is_there = [&](int64_t node) { return std::ranges::binary_search(nodes, node); };
  if (std::ranges::none_of(those, is_there)) add(those.front(), nodes);
}

// Returns the nodes whose ranks run, by their round.
std::map<int64_t, std::vector<int64_t>> worlds(const plan::Pass& pass) {
  std::map<int64_t, std::vector<int64_t>> nodes;
  for (const int64_t node : plan::all_members(pass)) {
    const AgentState* state = pass.last_report(pass.current[static_cast<size_t>(node)]);
    const bool has_ranks =
        state != nullptr && std::ranges::any_of(state->workers, &WorkerState::running);
    if (has_ranks) nodes[state->round].push_back(node);
  }
  return nodes;
}

bool all_know(const plan::Pass& pass) {
  return std::ranges::none_of(pass.in_round(), [&](const plan::PodView* pod) {
    return pass.current_report(pod) == nullptr;
  });
}

// Returns whether choose_some() may choose other nodes for the job in every epoch.
bool changes_with_time(uint64_t job, size_t nodes) {
  return nodes >= 2 && job % 3 == 2;
}

}  // namespace

std::vector<int64_t> choose_some(const plan::Pass& pass) {
  const uint64_t job = number_of(pass.job().metadata.uid);
  std::vector<int64_t> all = plan::all_members(pass);
  const bool needs_all = pass.spec().parameterServers.has_value();
  if (needs_all || all.size() < 2 || job % 3 == 0) return all;
  const bool has_round = pass.formed() && !pass.round_nodes.empty();
  if (has_round && !all_know(pass)) return pass.round_nodes;
  if (changes_with_time(job, all.size())) {
    const auto epoch = static_cast<uint64_t>(pass.seen.wall_now.time_since_epoch() / kEpoch);
    const uint64_t chosen = mixed(job + epoch);
    std::erase_if(all, [&](int64_t node) { return (chosen >> node & 1) == 0; });
  } else {
    all.erase(all.begin() + static_cast<int64_t>(job / 3 % all.size()));
  }
  if (has_round) {
    add_one_of(pass.round_nodes, all);
  } else {
    for (const auto& [round, nodes] : worlds(pass)) add_one_of(nodes, all);
  }
  if (all.empty()) add(0, all);
  return all;
}

loop::PlanFunction plan_with(std::vector<plan::Policy> policies, plan::RoundChoice choose) {
  return [policies = std::move(policies), choose](const plan::Observed& observed, TimePoint now,
                                                  const plan::Limits& limits) {
    plan::Plan plan = plan::plan_by(policies, observed, now, limits, choose);
    const bool is_over = is_finished(observed.job.status);
    const uint64_t job = number_of(observed.job.metadata.uid);
    const auto nodes = static_cast<size_t>(observed.job.spec.nodes);
    if (choose != choose_some || is_over || !changes_with_time(job, nodes)) return plan;
    // Time alone changes the choice. Other jobs have to wake up without this.
    const TimePoint again = now + kEpoch - observed.wall_now.time_since_epoch() % kEpoch;
    if (!plan.requeue_at || again < *plan.requeue_at) plan.requeue_at = again;
    return plan;
  };
}

Mutation leaving_out_nodes(plan::RoundChoice choose) {
  const auto all = plan::all_policies();
  Mutation mutation{.plan = plan_with({all.begin(), all.end()}, choose)};
  mutation.oldest_protocol = kProtocolWithLayouts;
  return mutation;
}

}  // namespace lockstep::sim
