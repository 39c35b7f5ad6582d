#include "controller/plan/straggler.h"

#include <algorithm>
#include <cstdio>
#include <vector>

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

std::vector<Peers> peers_of(const SlowRankSearch& search) {
  const bool is_alone = search.mesh.data * search.mesh.tensor == 1;
  if (is_alone && !search.stages_are_even) return {};
  std::vector<Peers> groups(is_alone ? 1 : static_cast<size_t>(search.mesh.pipeline));
  for (int64_t rank = 0; rank < search.mesh.size(); ++rank) {
    const int64_t stage = is_alone ? 0 : coordinates(search.mesh, rank).pipeline;
    groups[static_cast<size_t>(stage)].push_back(rank);
  }
  return groups;
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

std::optional<SlowRank> slowest_of(const RankStates& ranks, const Peers& peers, double ratio_min) {
  std::vector<double> busy;
  for (const int64_t rank : peers) {
    const WorkerState* state = ranks[static_cast<size_t>(rank)];
    if (state == nullptr || !state->speed) return std::nullopt;
    busy.push_back(busy_seconds(*state->speed));
  }
  if (busy.size() < 2) return std::nullopt;
  const auto most = std::ranges::max_element(busy);
  const int64_t rank = peers[static_cast<size_t>(most - busy.begin())];
  const double seconds = *most;
  const double usual = median(std::move(busy));
  const double step = ranks[static_cast<size_t>(rank)]->speed->step_seconds;
  const bool is_slow = seconds >= ratio_min * usual && seconds - usual >= kShareOfStepMin * step;
  if (!is_slow || usual <= 0) return std::nullopt;
  return SlowRank{.rank = rank,
                  .ratio = seconds / usual,
                  .seconds = seconds,
                  .usual = usual,
                  .slowest = slowest_part(ranks, peers, rank)};
}

// Ranks whose share of an uneven batch is larger may take longer.
double share_ratio(const TrainingJobSpec& spec, const Mesh& mesh) {
  const int64_t least = spec.train->batch.global / mesh.data;
  const bool is_even = shares_evenly(spec.train->batch, mesh.data);
  return is_even || least == 0 ? 1 : static_cast<double>(least + 1) / static_cast<double>(least);
}

std::optional<SlowRank> slow_rank_of(const Pass& pass, double ratio_min) {
  const TrainingJobSpec& spec = pass.spec();
  const RankStates ranks = rank_states(pass);
  const Result<Mesh> mesh = make_mesh({.world_size = std::ssize(ranks),
                                       .pipeline = spec.parallelism.pipeline,
                                       .tensor = spec.parallelism.tensor});
  if (!mesh.ok()) return std::nullopt;
  return find_slow(ranks, {.mesh = *mesh,
                           .ratio_min = ratio_min * share_ratio(spec, *mesh),
                           .stages_are_even = spec.parallelism.stages.empty()});
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

bool trains(const Pass& pass) {
  return pass.spec().train && pass.formed() && is_true(pass.status, kRunning);
}

}  // namespace

std::optional<SlowRank> find_slow(const RankStates& ranks, const SlowRankSearch& search) {
  std::optional<SlowRank> found;
  if (std::ssize(ranks) != search.mesh.size()) return found;
  for (const Peers& peers : peers_of(search)) {
    const std::optional<SlowRank> slow = slowest_of(ranks, peers, search.ratio_min);
    if (slow && (!found || slow->ratio > found->ratio)) found = slow;
  }
  return found;
}

void derive_straggling(Pass& pass) {
  const Condition* before = find_condition(pass.status, kStraggling);
  const bool was_slow = before != nullptr && before->status == "True";
  if (!trains(pass)) {
    if (was_slow) pass.set(kStraggling, false, "RoundEnded");
    return;
  }
  const std::optional<SlowRank> slow = slow_rank_of(pass, was_slow ? kSlowNoMore : kSlow);
  if (!slow) {
    if (was_slow) pass.set(kStraggling, false, "AsFastAsOthers");
    return;
  }
  const std::string name = name_of(pass, slow->rank);
  if (was_slow && before->message.starts_with(name)) return;     // its numbers would always change
  if (was_slow) pass.set(kStraggling, false, "AsFastAsOthers");  // begins anew for another rank
  const std::string message = name + sentence(*slow);
  pass.event(true, kStraggling, message);
  pass.set(kStraggling, true, "RankSlow", message);
}

std::optional<FailureStatus> find_straggler(Pass& pass) {
  const std::vector<FailureRule>& rules = pass.spec().failure.rules;
  const auto rule = std::ranges::find(rules, std::string_view(kStraggler), &FailureRule::event);
  const Condition* known = find_condition(pass.status, kStraggling);
  const bool may_be = rule != rules.end() && known != nullptr && known->status == "True";
  if (!may_be || !trains(pass)) return std::nullopt;
  const std::optional<SlowRank> slow = slow_rank_of(pass, kSlowNoMore);
  if (!slow || !known->message.starts_with(name_of(pass, slow->rank))) return std::nullopt;
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
