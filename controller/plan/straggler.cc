#include "controller/plan/straggler.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "controller/plan/conditions.h"

namespace lockstep::plan {
namespace {

constexpr double kSlow = 1.5;
constexpr double kSlowNoMore = 1.25;
constexpr double kShareOfStepMin = 0.1;

struct Part {
  std::string_view name;
  double WorkerSpeed::*seconds;
};
constexpr Part kParts[] = {{"data", &WorkerSpeed::data_seconds},
                           {"forward", &WorkerSpeed::forward_seconds},
                           {"backward", &WorkerSpeed::backward_seconds},
                           {"update", &WorkerSpeed::update_seconds}};

double busy_seconds(const WorkerSpeed& speed) {
  double sum = 0;
  for (const Part& part : kParts) sum += speed.*part.seconds;
  return sum;
}

// Returns the lower one of two middles, so that with two ranks it is that of the faster one.
double median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using Peers = std::vector<int64_t>;  // ranks

std::vector<Peers> peers_of(const Mesh& mesh) {
  if (mesh.data * mesh.tensor == 1) return {};
  std::vector<Peers> stages(static_cast<size_t>(mesh.pipeline));
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    stages[static_cast<size_t>(coordinates(mesh, rank).pipeline)].push_back(rank);
  }
  return stages;
}

bool all_have_speed(const RankStates& ranks) {
  return std::ranges::all_of(
      ranks, [](const WorkerState* state) { return state != nullptr && state->speed; });
}

std::string_view slowest_part(const RankStates& ranks, const Peers& peers, int64_t slow) {
  std::string_view slowest;
  double most = 0;
  for (const Part& part : kParts) {
    std::vector<double> seconds;
    for (const int64_t rank : peers) {
      seconds.push_back((*ranks[static_cast<size_t>(rank)]->speed).*part.seconds);
    }
    const double more =
        (*ranks[static_cast<size_t>(slow)]->speed).*part.seconds - median(std::move(seconds));
    if (more > most) slowest = part.name;
    most = std::max(most, more);
  }
  return slowest;
}

void add_slow(const RankStates& ranks, const Peers& peers, double ratio_min,
              std::vector<SlowRank>& found) {
  const auto speed_of = [&](int64_t rank) -> const WorkerSpeed& {
    return *ranks[static_cast<size_t>(rank)]->speed;
  };
  std::vector<double> busy;
  for (const int64_t rank : peers) busy.push_back(busy_seconds(speed_of(rank)));
  const double usual = median(busy);
  for (size_t i = 0; i < peers.size(); ++i) {
    const double more = busy[i] - usual;
    const bool is_slow = usual > 0 && busy[i] >= ratio_min * usual &&
                         more >= kShareOfStepMin * speed_of(peers[i]).step_seconds;
    if (!is_slow) continue;
    found.push_back({.rank = peers[i],
                     .ratio = busy[i] / usual,
                     .seconds = busy[i],
                     .usual = usual,
                     .slowest = slowest_part(ranks, peers, peers[i])});
  }
}

// Ranks whose share of an uneven batch is larger may take longer.
double share_ratio(const TrainingJobSpec& spec, int64_t data_ranks) {
  const int64_t least = spec.train->batch.global / data_ranks;
  const bool is_even = shares_evenly(spec.train->batch, data_ranks);
  return is_even || least == 0 ? 1 : static_cast<double>(least + 1) / static_cast<double>(least);
}

// Returns the number of the round's ranks that train.
int64_t worker_ranks(const Pass& pass) {
  const int64_t nodes = std::ssize(pass.round_nodes);
  const int64_t workers = pass.spec().parameterServers ? std::min(nodes, pass.spec().nodes) : nodes;
  return workers * processes_per_node(pass.spec());
}

double least_ratio(const Pass& pass) {
  const ParallelismSpec& parallelism = pass.spec().parallelism;
  const int64_t data = worker_ranks(pass) / (parallelism.pipeline * parallelism.tensor);
  return data > 0 ? share_ratio(pass.spec(), data) : 1;
}

// Spares a young round the look at all of its ranks.
bool may_have_speeds(const Pass& pass) {
  const AgentState* state = pass.current_report(pass.in_round().front());
  return state != nullptr && !state->workers.empty() && state->workers.front().speed;
}

// Returns the states of the ranks that train, in front of those of servers.
RankStates worker_states(const Pass& pass) {
  RankStates ranks = rank_states(pass);
  ranks.resize(std::min(ranks.size(), static_cast<size_t>(worker_ranks(pass))));
  return ranks;
}

// Returns nothing unless the reports of the round's workers are complete.
std::optional<std::vector<SlowRank>> slow_ranks(const Pass& pass, double ratio_min) {
  if (!may_have_speeds(pass)) return std::nullopt;
  const TrainingJobSpec& spec = pass.spec();
  const RankStates ranks = worker_states(pass);
  const Result<Mesh> mesh = make_mesh({.world_size = std::ssize(ranks),
                                       .pipeline = spec.parallelism.pipeline,
                                       .tensor = spec.parallelism.tensor});
  if (!mesh.ok() || !all_have_speed(ranks)) return std::nullopt;
  return find_slow(ranks, *mesh, ratio_min * share_ratio(spec, mesh->data));
}

std::string name_of(const Pass& pass, int64_t rank) {
  const int64_t index = pass.node_of_rank(rank);
  const PodView* pod = index < 0 ? nullptr : pass.current[static_cast<size_t>(index)];
  return "rank " + std::to_string(rank) + (pod == nullptr ? "" : " on " + pod->node_name) + " ";
}

std::string sentence(const SlowRank& slow) {
  char numbers[160];
  std::snprintf(numbers, sizeof(numbers),
                "takes %.1f times as long as its peers for a step: it computes %.3g s, they %.3g s",
                slow.ratio, slow.seconds, slow.usual);
  return numbers + ("; most of the difference is in " + std::string(slow.slowest));
}

// Returns the rank that the message names; nullptr if it is not among these.
const SlowRank* named_in(const Pass& pass, const std::vector<SlowRank>& slow,
                         const std::string& message) {
  const auto found = std::ranges::find_if(
      slow, [&](const SlowRank& one) { return message.starts_with(name_of(pass, one.rank)); });
  return found == slow.end() ? nullptr : &*found;
}

bool trains(const Pass& pass) {
  return pass.spec().train && pass.formed() && is_true(pass.status, kRunning);
}

}  // namespace

std::vector<SlowRank> find_slow(const RankStates& ranks, const Mesh& mesh, double ratio_min) {
  std::vector<SlowRank> found;
  if (std::ssize(ranks) != mesh.size() || !all_have_speed(ranks)) return found;
  for (const Peers& peers : peers_of(mesh)) add_slow(ranks, peers, ratio_min, found);
  std::ranges::stable_sort(found, std::ranges::greater(), &SlowRank::ratio);
  return found;
}

void derive_straggling(Pass& pass) {
  const Condition* before = find_condition(pass.status, kStraggling);
  const bool was_slow = before != nullptr && before->status == "True";
  if (!trains(pass)) {
    if (was_slow) pass.set(kStraggling, false, "RoundEnded");
    return;
  }
  const auto slow = slow_ranks(pass, kSlowNoMore);
  if (!slow) return;
  if (was_slow && named_in(pass, *slow, before->message)) return;  // its numbers always change
  if (was_slow) pass.set(kStraggling, false, "AsFastAsOthers");
  if (slow->empty() || slow->front().ratio < kSlow * least_ratio(pass)) return;
  const std::string message = name_of(pass, slow->front().rank) + sentence(slow->front());
  pass.event(true, kStraggling, message);
  pass.set(kStraggling, true, "RankSlow", message);
}

std::optional<FailureStatus> find_straggler(Pass& pass) {
  const FailureSpec& spec = pass.spec().failure;
  const auto rule =
      std::ranges::find(spec.rules, std::string_view(kStraggler), &FailureRule::event);
  const Condition* known = find_condition(pass.status, kStraggling);
  const bool may_be = rule != spec.rules.end() && known != nullptr && known->status == "True";
  if (!may_be || !trains(pass)) return std::nullopt;
  if (rule->action != kFailAction && pass.status.restarts >= spec.maxRestarts) return std::nullopt;
  const auto all = slow_ranks(pass, kSlowNoMore);
  const SlowRank* slow = all ? named_in(pass, *all, known->message) : nullptr;
  if (slow == nullptr) return std::nullopt;
  const Result<WallTime> since = wall_time_from_rfc3339(known->lastTransitionTime);
  if (!since.ok()) return std::nullopt;
  const int64_t seconds = hang_seconds_from_text(rule->after).value_or(kStragglerSeconds);
  const Duration left = *since + std::chrono::seconds(seconds) - pass.seen.wall_now;
  if (left > Duration{0}) {
    pass.requeue(pass.now + left);
    return std::nullopt;
  }
  FailureStatus failure;
  failure.rank = slow->rank;
  failure.nodeIndex = pass.node_of_rank(slow->rank);
  const PodView* pod = pass.current[static_cast<size_t>(failure.nodeIndex)];
  if (pod != nullptr) failure.node = pod->node_name;
  failure.reason = kStraggler;
  failure.message = known->message;
  return failure;
}

}  // namespace lockstep::plan
