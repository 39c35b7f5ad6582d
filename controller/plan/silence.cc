#include "controller/plan/silence.h"

#include <algorithm>

#include "common/api/worker_config.h"

namespace lockstep::plan {
namespace {

bool is_asked_in_vain(const AgentView& agent) {
  return agent.state == nullptr && !agent.error.empty() && !agent.refuses_token;
}

// Returns for how long the worker has missed ranks of the node, when it said so; 0: it misses none.
double missed_seconds(const Pass& pass, const WorkerState& worker, int64_t node_index) {
  const auto is_there = [&](int64_t rank) { return pass.node_of_rank(rank) == node_index; };
  if (worker.running) {
    const bool waits = worker.wait && std::ranges::any_of(worker.wait->waits_for, is_there);
    return waits ? worker.wait->seconds : 0;
  }
  const bool lost_a_peer = worker.exit_code == kExitPeerLost || worker.exit_code == kExitPeerHung;
  const bool lost_it = lost_a_peer && worker.suspect_rank >= 0 && is_there(worker.suspect_rank);
  return lost_it ? worker.failed_seconds_ago : 0;
}

}  // namespace

Duration base_silence_limit(const Pass& pass) {
  return std::max(pass.limits.agent_silence, pass.seen.agent_silence.value_or(Duration{0}));
}

Duration healthy_silence_limit(const Pass& pass) {
  return std::max(pass.limits.agent_healthy_within,
                  pass.seen.agent_silence.value_or(Duration{0}) / 2);
}

Duration current_silence_limit(const Pass& pass) {
  const Duration silence = base_silence_limit(pass);
  return pass.seen.suspect_own_network ? std::max(pass.limits.agent_silence_if_suspect, 4 * silence)
                                       : silence;
}

TimePoint silent_since(const Pass& pass, const PodView& pod) {
  constexpr double kSecondsMax = 3600;
  const AgentView& silent = *pass.agent(&pod);
  TimePoint since = silent.last_heard;
  if (!is_asked_in_vain(silent) || !pass.formed()) return since;
  for (const PodView* member : pass.in_round()) {
    const AgentState* state = pass.current_report(member);
    if (state == nullptr) continue;
    const TimePoint said_at = pass.agent(member)->state_at;
    for (const WorkerState& worker : state->workers) {
      const double seconds = missed_seconds(pass, worker, pod.node_index);
      if (seconds > 0)
        since = std::min(since, said_at - from_seconds(std::min(seconds, kSecondsMax)));
    }
  }
  return since;
}

TimePoint silent_at(const Pass& pass, const PodView& pod, Duration limit) {
  const TimePoint asked_enough = pass.agent(&pod)->last_heard + pass.limits.agent_asked_min;
  return std::max(silent_since(pass, pod) + limit, asked_enough);
}

bool is_unheard(const Pass& pass, const PodView& pod) {
  return pass.agent(&pod) != nullptr &&
         pass.now >= silent_at(pass, pod, healthy_silence_limit(pass));
}

}  // namespace lockstep::plan
