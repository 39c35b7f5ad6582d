#include "controller/plan/stuck.h"

#include <algorithm>
#include <map>

#include "common/layout/mesh.h"
#include "controller/plan/conditions.h"

namespace lockstep::plan {
namespace {

constexpr size_t kRangesNamed = 12;

// Returns "0-2, 5"; beyond kRangesNamed ranges only a count.
std::string rank_ranges(const std::vector<int64_t>& ranks) {
  std::string text;
  size_t ranges = 0;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (++ranges > kRangesNamed) return text + " and " + std::to_string(ranks.size() - i) + " more";
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string named(const std::vector<int64_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_ranges(ranks);
}

const WorkerState* state_of(const RankStates& ranks, int64_t rank) {
  const bool is_there = rank >= 0 && rank < static_cast<int64_t>(ranks.size());
  return is_there ? ranks[static_cast<size_t>(rank)] : nullptr;
}

// Returns the operation the rank waits in, or nullptr if it does not wait.
const WorkerWait* wait_of(const RankStates& ranks, int64_t rank) {
  const WorkerState* state = state_of(ranks, rank);
  if (state == nullptr || !state->running || state->is_lifeless || !state->wait) return nullptr;
  const auto is_there = [&](int64_t other) {
    return other >= 0 && other < static_cast<int64_t>(ranks.size());
  };
  const auto& others = state->wait->waits_for;
  return std::any_of(others.begin(), others.end(), is_there) ? &*state->wait : nullptr;
}

constexpr int64_t kCycle = -1;

// Returns for each waiting rank the nearest rank that waits for nobody, along the ranks it waits
// for; kCycle if there is none. For a rank that does not wait, returns the rank itself.
std::vector<int64_t> find_blocking_ranks(const RankStates& ranks) {
  std::vector<std::vector<int64_t>> waiting_for(ranks.size());  // by awaited rank
  std::vector<int64_t> blocking(ranks.size(), kCycle);
  std::vector<int64_t> visited;
  for (int64_t rank = 0; rank < static_cast<int64_t>(ranks.size()); ++rank) {
    const WorkerWait* wait = wait_of(ranks, rank);
    if (wait == nullptr) {
      blocking[static_cast<size_t>(rank)] = rank;
      visited.push_back(rank);
      continue;
    }
    for (const int64_t other : wait->waits_for) {
      const bool is_there = other >= 0 && other < static_cast<int64_t>(ranks.size());
      if (is_there) waiting_for[static_cast<size_t>(other)].push_back(rank);
    }
  }
  for (size_t i = 0; i < visited.size(); ++i) {
    const auto awaited = static_cast<size_t>(visited[i]);
    for (const int64_t rank : waiting_for[awaited]) {
      if (blocking[static_cast<size_t>(rank)] != kCycle) continue;
      blocking[static_cast<size_t>(rank)] = blocking[awaited];
      visited.push_back(rank);
    }
  }
  return blocking;
}

std::string group_of(const WorkerWait& wait, size_t world) {
  if (wait.group_size == static_cast<int64_t>(world)) {
    return "all " + std::to_string(world) + " ranks";
  }
  return "the group of ranks " + wait.ranks;
}

// Describes where in the step the rank that holds the others up is; empty if it is not known.
std::string place_of(const WorkerState* state, int64_t stage) {
  const std::string of_stage = stage < 0 ? "" : " of stage " + std::to_string(stage);
  const bool is_in_step = state != nullptr && state->phase == WorkerPhase::kTraining;
  if (is_in_step && state->micro_batch >= 0) {
    return ", in micro-batch " + std::to_string(state->micro_batch) + of_stage;
  }
  return of_stage.empty() ? "" : ", a rank" + of_stage;
}

// Describes the rank that holds the others up.
std::string condition_of(const WorkerState* state) {
  if (state == nullptr) return ", which has not reported";
  if (!state->running) return ", which has ended";
  if (state->is_lifeless) return ", which shows no sign of life";
  if (state->phase == WorkerPhase::kTraining) return "";
  return ", in phase " + std::string(worker_phase_name(state->phase));
}

std::string cycle_text(const StuckRank& stuck, const RankStates& ranks) {
  std::string text = named(stuck.waiting) + " wait for each other:";
  size_t listed = 0;
  for (const int64_t rank : stuck.waiting) {
    const WorkerWait* wait = wait_of(ranks, rank);
    if (wait == nullptr || ++listed > kRangesNamed) continue;
    text += (listed == 1 ? " rank " : "; rank ") + std::to_string(rank) + " in " + wait->operation +
            " of " + group_of(*wait, ranks.size()) + " for " + named(wait->waits_for);
  }
  return text;
}

// For most plans nothing more needs checking.
bool any_waits(const Pass& pass) {
  return std::any_of(pass.current.begin(), pass.current.end(), [&](const PodView* pod) {
    const AgentState* state = pass.current_report(pod);
    return state != nullptr && std::any_of(state->workers.begin(), state->workers.end(),
                                           [](const WorkerState& w) { return w.wait.has_value(); });
  });
}

bool all_report(const Pass& pass) {
  return std::ranges::all_of(
      pass.in_round(), [&](const PodView* pod) { return pass.current_report(pod) != nullptr; });
}

// Returns when the first of the current waits began.
TimePoint waiting_since(const Pass& pass) {
  TimePoint since = pass.now;
  for (const PodView* pod : pass.current) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr) continue;
    for (const WorkerState& worker : state->workers) {
      if (!worker.wait) continue;
      since = std::min(since, pass.agent(pod)->state_at - from_seconds(worker.wait->seconds));
    }
  }
  return since;
}

// Returns whether the rank does something that takes time between steps, so that the others rightly
// wait.
bool is_between_steps(const WorkerState* state) {
  if (state == nullptr || !state->running || state->is_lifeless) return false;
  return state->phase == WorkerPhase::kSaving || state->phase == WorkerPhase::kValidating ||
         state->phase == WorkerPhase::kFinishing;
}

// Returns whether the rank that holds the others up gets more time. If so, requeues for when that
// is over.
bool is_excused(Pass& pass, const StuckRank& stuck, const RankStates& ranks) {
  if (!is_between_steps(state_of(ranks, stuck.rank))) return false;
  const TimePoint until = waiting_since(pass) + pass.limits.saving_grace;
  if (pass.now >= until) return false;
  pass.requeue(until);
  return true;
}

std::string node_of(const Pass& pass, int64_t rank) {
  const int64_t index = pass.node_of_rank(rank);
  const PodView* pod = index < 0 ? nullptr : pass.current[static_cast<size_t>(index)];
  return pod == nullptr ? "" : pod->node_name;
}

// Returns the pipeline stage of a rank of the round; -1 without a pipeline.
int64_t stage_of(const Pass& pass, int64_t rank, size_t world) {
  const ParallelismSpec& parallelism = pass.spec().parallelism;
  if (rank < 0 || parallelism.pipeline == 1) return -1;
  const Result<Mesh> mesh = make_mesh({.world_size = static_cast<int64_t>(world),
                                       .pipeline = parallelism.pipeline,
                                       .tensor = parallelism.tensor});
  return mesh.ok() ? coordinates(*mesh, rank).pipeline : -1;
}

}  // namespace

RankStates rank_states(const Pass& pass) {
  const auto each = static_cast<size_t>(processes_per_node(pass.spec()));
  RankStates ranks(pass.round_nodes.size() * each);
  for (const PodView* pod : pass.in_round()) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr) continue;
    for (const WorkerState& worker : state->workers) {
      if (worker.rank < 0 || worker.rank >= static_cast<int64_t>(ranks.size())) continue;
      ranks[static_cast<size_t>(worker.rank)] = &worker;
    }
  }
  return ranks;
}

std::optional<StuckRank> find_stuck(const RankStates& ranks) {
  std::map<int64_t, StuckRank> by_culprit;
  const std::vector<int64_t> blocking_rank_of = find_blocking_ranks(ranks);
  for (int64_t rank = 0; rank < static_cast<int64_t>(ranks.size()); ++rank) {
    const WorkerWait* wait = wait_of(ranks, rank);
    if (wait == nullptr) continue;
    const int64_t culprit = blocking_rank_of[static_cast<size_t>(rank)];
    StuckRank& stuck = by_culprit[culprit];
    stuck.rank = culprit;
    stuck.waiting.push_back(rank);
    const auto& awaited = wait->waits_for;
    const bool is_direct =
        culprit == kCycle || std::find(awaited.begin(), awaited.end(), culprit) != awaited.end();
    if (is_direct &&
        (stuck.missing_from.operation.empty() || wait->seconds > stuck.missing_from.seconds)) {
      stuck.missing_from = *wait;
    }
  }
  if (by_culprit.empty()) return std::nullopt;
  // No single rank causes a cycle, so it comes last on a tie.
  const auto most =
      std::max_element(by_culprit.begin(), by_culprit.end(), [](const auto& a, const auto& b) {
        if (a.second.waiting.size() != b.second.waiting.size()) {
          return a.second.waiting.size() < b.second.waiting.size();
        }
        return a.first < 0 || (b.first >= 0 && a.first > b.first);
      });
  return most->second;
}

std::string stuck_text(const StuckRank& stuck, const StuckNames& names) {
  if (stuck.rank < 0) return cycle_text(stuck, names.ranks);
  std::string text = "rank " + std::to_string(stuck.rank);
  if (!names.node.empty()) text += " on " + names.node;
  const WorkerState* const state = state_of(names.ranks, stuck.rank);
  const std::string description = place_of(state, names.stage) + condition_of(state);
  text += description + (description.empty() ? "" : ",") + " is missing from " +
          stuck.missing_from.operation + " of " + group_of(stuck.missing_from, names.ranks.size());
  return text + "; " + named(stuck.waiting) + (stuck.waiting.size() == 1 ? " waits" : " wait") +
         " for it";
}

void derive_stuck(Pass& pass) {
  const Condition* before = find_condition(pass.status, kStuck);
  const bool was_stuck = before != nullptr && before->status == "True";
  const bool waits = pass.formed() && any_waits(pass);
  if (!waits && !was_stuck) return;
  const RankStates ranks = rank_states(pass);
  std::optional<StuckRank> stuck = waits ? find_stuck(ranks) : std::nullopt;
  if (stuck && is_excused(pass, *stuck, ranks)) stuck.reset();
  if (!stuck && !was_stuck) return;
  ConditionUpdate update{.type = kStuck,
                         .time = rfc3339(pass.seen.wall_now),
                         .generation = pass.job().metadata.generation};
  if (!stuck) {
    const bool round_ended = !pass.formed() || is_true(pass.status, kRestarting);
    // Ranks without a report may still wait, in the same round.
    if (!round_ended && !all_report(pass)) return;
    update.reason = round_ended ? "RoundEnded" : "Moving";
    set_condition(pass.status, std::move(update));
    return;
  }
  update.value = true;
  update.reason = stuck->rank < 0 ? "RanksWaitForEachOther" : "RankMissing";
  const std::string text =
      stuck_text(*stuck, {.ranks = ranks,
                          .node = node_of(pass, stuck->rank),
                          .stage = stage_of(pass, stuck->rank, ranks.size())}) +
      ", since ";
  const bool is_reported = was_stuck && before->message.compare(0, text.size(), text) == 0;
  const WallTime since = pass.seen.wall_now - from_seconds(stuck->missing_from.seconds);
  update.message = is_reported ? before->message : text + rfc3339(since);
  if (!was_stuck) pass.event(true, "Stuck", update.message);
  set_condition(pass.status, std::move(update));
}

}  // namespace lockstep::plan
