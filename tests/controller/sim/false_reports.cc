// Wrong reports by agents.
#include "common/api/worker_config.h"
#include "tests/controller/sim/nodes.h"

namespace lockstep::sim {
namespace {

constexpr int64_t kWildest = int64_t{1} << 53;

void end_well(AgentState& state) {
  state.phase = "Completed";
  for (WorkerState& worker : state.workers) {
    worker.running = false;
    worker.exit_code = 0;
    worker.signal = 0;
    worker.reason = "Completed";
    worker.phase = WorkerPhase::kDone;
  }
}

// Picks numbers inside and outside the range that the parser accepts.
void go_wild(AgentState& state, Random& random) {
  constexpr int64_t kCodes[] = {255, 256, -9, kWildest};
  WorkerState& worker = state.workers.front();
  state.phase = "Failed";
  worker.running = false;
  worker.exit_code = kCodes[random.below(std::size(kCodes))];
  worker.reason = std::string(1 + random.below(300), 'W');
  worker.log_tail = std::string(4096, '\xff');
  worker.failed_seconds_ago = static_cast<double>(random.below(2'000'000'000));
  worker.step = kWildest - static_cast<int64_t>(random.below(2));
  ProgressStatus& progress = state.progress.emplace();
  progress.step = progress.steps = worker.step;
}

}  // namespace

std::optional<AgentState> Nodes::state_of_another_job(const Node& node) const {
  for (const auto& [uid, other] : nodes_) {
    if (other->job_uid != node.job_uid && other->state.round > 0) return report(*other);
  }
  return std::nullopt;
}

// A report about another job must not affect this one, so it does not count as a false report. A
// false end goes to on_ended instead.
Result<AgentState> Nodes::reported_state(const loop::AgentAddress& agent, AgentState state) {
  Node* node = at(agent);
  if (node == nullptr || state.round == 0 || state.round != node->state.round) return state;
  if (chance_.happens(Fault::kOtherJob, node->key)) {
    const std::optional<AgentState> other = state_of_another_job(*node);
    return other ? *other : state;
  }
  if (chance_.happens(Fault::kFalseEnd, node->key)) {
    end_well(state);
    if (on_ended) on_ended(*node);
    // A rank that has ended reports nothing else: this must not stay its last report.
    if (!node->state.workers.front().running) ++node->state.sequence;
    return state;
  }
  const AgentState truth = state;
  if (chance_.happens(Fault::kOtherHash, node->key)) {
    state.hash = std::string(state.hash.rbegin(), state.hash.rend());
    if (chance_.flip(0.5)) end_well(state);
  } else if (chance_.happens(Fault::kLaterRound, node->key)) {
    state.round += chance_.flip(0.1) ? kWildest / 2 : 1;
    if (chance_.flip(0.5)) end_well(state);
  } else if (chance_.happens(Fault::kWildNumbers, node->key)) {
    go_wild(state, chance_.random);
  }
  if (state == truth) return state;
  false_reporters_.insert({node->job_uid, node->index, node->incarnation});
  return agent_state_from_json(to_json(state));
}

bool Nodes::sent_false_report(const std::string& job_uid, int64_t index,
                              int64_t incarnation) const {
  return false_reporters_.contains({job_uid, index, incarnation});
}

}  // namespace lockstep::sim
