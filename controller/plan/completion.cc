#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/ledger.h"
#include "controller/plan/pass.h"
#include "controller/plan/servers.h"

namespace lockstep::plan {
namespace {

// A pod that exited successfully needs no report from its agent.
bool is_done(const Pass& pass, const PodView* pod) {
  if (pod == nullptr) return false;
  if (pod->ended_well()) return true;
  const AgentState* state = pass.current_report(pod);
  return state != nullptr && has_completed(*state);
}

// Workers that are done need no server any more, so one that was started anew need not end.
bool all_are_done(const Pass& pass) {
  return std::ranges::all_of(pods_that_must_end(pass),
                             [&](const PodView* pod) { return is_done(pass, pod); });
}

bool rank_zero_is_done(const Pass& pass) {
  const AgentState* state = pass.current_report(pass.in_round().front());
  if (state == nullptr) return false;
  return std::any_of(state->workers.begin(), state->workers.end(), [](const WorkerState& worker) {
    return worker.rank == 0 && !worker.running && worker.reason == "Completed";
  });
}

}  // namespace

Verdict completion(Pass& pass) {
  if (!pass.formed() || pass.current.empty()) return Verdict::kNext;
  const bool by_rank_zero =
      pass.spec().successPolicy == kRankZero && !pass.spec().train && rank_zero_is_done(pass);
  if (!by_rank_zero && !all_are_done(pass)) return Verdict::kNext;
  const std::string time = rfc3339(pass.seen.wall_now);
  const std::string who =
      by_rank_zero ? "rank 0" : "all " + std::to_string(pass.round_nodes.size()) + " nodes";
  const std::string message = who + " completed round " + std::to_string(pass.status.round);
  note_recovered(pass.status, pass.seen.wall_now, pass.slowest_beginning());
  close_interval(pass.status, pass.seen.wall_now);
  for (const char* type : {kRunning, kRestarting}) {
    pass.set(type, false, "Complete");
  }
  pass.set(kComplete, true, by_rank_zero ? "RankZeroCompleted" : "WorkersCompleted", message);
  pass.status.completionTime = time;
  pass.event(false, "Completed", message);
  pass.plan.why = "the job completed";
  return Verdict::kDecided;
}

}  // namespace lockstep::plan
