#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "common/api/step_number_table.h"
#include "controller/plan/agent_trouble.h"
#include "controller/plan/conditions.h"
#include "controller/plan/draining.h"
#include "controller/plan/fixed_fields.h"
#include "controller/plan/images.h"
#include "controller/plan/ledger.h"
#include "controller/plan/network_policy.h"
#include "controller/plan/pass.h"
#include "controller/plan/pod_failure.h"
#include "controller/plan/precision.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/servers.h"
#include "controller/plan/storage.h"
#include "controller/plan/straggler.h"
#include "controller/plan/stuck.h"

namespace lockstep::plan {
namespace {

// Something that holds the job up: said in a condition, and once in an event.
void set_trouble(Pass& pass, const char* type, const std::string& reason,
                 const std::string& message) {
  const Condition* before = find_condition(pass.status, type);
  if (before == nullptr || before->reason != reason) pass.event(true, reason, message);
  pass.set(type, false, reason, message);
}

// Nodes that rounds leave out are not waited for.
void derive_scheduled(Pass& pass) {
  const std::vector<int64_t> wanted = wanted_nodes(pass);
  const int64_t desired = std::ssize(wanted);
  int64_t scheduled = 0;
  std::string why_not;
  for (const PodView* pod : pass.pods_of(wanted)) {
    if (pod == nullptr) continue;
    if (pod->scheduled) ++scheduled;
    if (why_not.empty() && !pod->scheduled) why_not = pod->unscheduled_reason;
  }
  if (scheduled == desired && desired > 0) {
    pass.set(kPodsScheduled, true, "AllScheduled");
  } else if (pass.seen.refusal) {
    set_trouble(pass, kPodsScheduled, pass.seen.refusal->reason, pass.seen.refusal->message);
  } else {
    pass.set(kPodsScheduled, false, why_not.empty() ? "Waiting" : "Unschedulable", why_not);
  }
}

// A round that runs is ready whatever the next one would need; the message and an event say what.
void set_ready(Pass& pass) {
  const Condition* before = find_condition(pass.status, kReady);
  const bool was_told = before != nullptr && !before->message.empty() && before->status == "True";
  const std::optional<AgentTrouble> trouble = trouble_of_next_round(pass);
  if (trouble && !was_told) pass.event(true, trouble->reason, trouble->message);
  pass.set(kReady, true, "AllPodsRun", trouble ? trouble->message : "");
}

void derive_ready(Pass& pass) {
  const std::vector<int64_t> wanted = wanted_nodes(pass);
  const int64_t desired = std::ssize(wanted);
  const int64_t ready = std::ranges::count_if(pass.pods_of(wanted), runs);
  const auto workers = std::min(pass.current.size(), static_cast<size_t>(pass.spec().nodes));
  pass.status.nodes = {
      .desired = pass.spec().nodes,
      .ready = std::ranges::count_if(std::span(pass.current).first(workers), runs)};
  pass.status.servers.reset();
  if (pass.spec().parameterServers) {
    pass.status.servers = {
        .desired = pass.spec().parameterServers->nodes,
        .ready = std::ranges::count_if(std::span(pass.current).subspan(workers), runs)};
  }
  if (const std::optional<AgentTrouble> trouble = agent_trouble(pass)) {
    set_trouble(pass, kReady, trouble->reason, trouble->message);
    return;
  }
  if (ready == desired && desired > 0) {
    set_ready(pass);
    return;
  }
  constexpr size_t kPodsNamed = 8;
  std::string message = std::to_string(ready) + " of " + std::to_string(desired) + " pods run";
  const char* reason = nullptr;
  size_t named = 0;
  for (const PodView* pod : pass.pods_of(wanted)) {
    const char* trouble = pod == nullptr ? nullptr : start_trouble(*pod);
    if (trouble == nullptr || ++named > kPodsNamed) continue;
    if (reason == nullptr) reason = trouble;
    message += "; " + pod->name + ": " + pod->waiting;
    if (!pod->waiting_message.empty()) message += " (" + pod->waiting_message + ")";
  }
  if (named > kPodsNamed) message += "; and " + std::to_string(named - kPodsNamed) + " more";
  if (reason == nullptr) {
    pass.set(kReady, false, "PodsMissing", message);
  } else {
    set_trouble(pass, kReady, reason, message);
  }
}

// A command's ranks count from their start on: what they do before their first step isn't known.
bool trains(const AgentState& state) {
  if (has_completed(state)) return true;
  if (state.workers.empty()) return false;
  return std::all_of(state.workers.begin(), state.workers.end(), [](const WorkerState& worker) {
    return worker.running ? worker.phase >= WorkerPhase::kTraining : worker.exit_code == 0;
  });
}

// All ranks are connected to each other.
bool all_formed(const Pass& pass) {
  for (const PodView* pod : counted_pods(pass)) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr || state->workers.empty()) return false;
    for (const WorkerState& worker : state->workers) {
      if (worker.running && worker.phase <= WorkerPhase::kForming) return false;
      if (!worker.running && worker.exit_code != 0) return false;
    }
  }
  return pass.formed() && !pass.current.empty();
}

bool all_train(const Pass& pass) {
  for (const PodView* pod : counted_pods(pass)) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr || !trains(*state)) return false;
  }
  return pass.formed() && !pass.current.empty();
}

// Only what is known makes a job Running; that it isn't any more is always a decision.
void derive_running(Pass& pass) {
  if (!all_train(pass)) {
    if (all_formed(pass)) note_formed(pass.status, pass.seen.wall_now, pass.slowest_beginning());
    if (find_condition(pass.status, kRunning) == nullptr) {
      pass.set(kRunning, false, "NotStarted");
    }
    return;
  }
  pass.set(kRunning, true, "AllRanksTrain");
  if (!is_true(pass.status, kRestarting)) return;
  note_recovered(pass.status, pass.seen.wall_now, pass.slowest_beginning());
  if (!was_drained(pass.status) && pass.status.lastFailure) {
    pass.event(false, "Recovered", recovery_text(*pass.status.lastFailure));
  }
  pass.set(kRestarting, false, "Recovered");
}

// Rounds to this number of significant digits, for people.
void round_to(int digits, std::optional<double>& value) {
  if (!value) return;
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, *value);
  value = std::strtod(text, nullptr);
}

void round_for_display(ProgressStatus& progress) {
  for (const StepNumber& number : step_number_table()) {
    const auto* value = std::get_if<StepNumber::Value>(&number.member);
    if (value != nullptr && number.status_digits > 0) {
      round_to(number.status_digits, progress.*(*value));
    }
  }
}

// For the built-in loop, the node of rank 0 reports for all. For a command, step and loss are those
// of the lowest node that reports any, and the counts of all nodes are added up.
std::optional<ProgressStatus> reported_progress(const Pass& pass) {
  std::optional<ProgressStatus> progress;
  for (const PodView* pod : pass.in_round()) {
    const AgentState* state = pass.current_report(pod);
    const bool has_any = state != nullptr && state->progress;
    if (has_any && !progress) {
      progress = state->progress;
    } else if (has_any) {
      add_counts(*state->progress, *progress);
    }
    if (pass.spec().train) break;
  }
  return progress;
}

// `seen` is the step of the first report in which all ranks train. Rank 0's agent tells the exact
// one for the built-in loop.
void note_where_resumed(Pass& pass, const AgentState* first, int64_t seen) {
  const bool is_told = first != nullptr && first->storage && first->storage->resumed_step >= 0;
  if (!is_told) return note_resumed(pass.status, seen, "");
  const StorageState& storage = *first->storage;
  if (storage.resumed_step == 0) return note_resumed(pass.status, 0, "");
  note_resumed(pass.status, storage.resumed_step, storage.from_memory ? "memory" : "storage");
}

// Returns the report of the agent that runs rank 0, or nullptr. It alone reports storage. Which
// node that is isn't known any more while the job is suspended.
const AgentState* report_of_first_rank(const Pass& pass) {
  if (!is_true(pass.status, kSuspended)) return pass.current_report(pass.in_round().front());
  for (const PodView* pod : pass.current) {
    const AgentState* state = pass.report_of_round(pod);
    if (state != nullptr && state->storage) return state;
  }
  return nullptr;
}

void derive_progress(Pass& pass) {
  if (pass.current.empty()) return;
  const AgentState* state = report_of_first_rank(pass);
  if (state != nullptr && state->last_checkpoint) {
    pass.status.lastCheckpoint = state->last_checkpoint;
  } else if (state != nullptr && state->storage && state->storage->resumed_step == 0) {
    pass.status.lastCheckpoint.reset();  // all that there were are set aside
  }
  std::optional<ProgressStatus> reported = reported_progress(pass);
  if (!reported) return;
  ProgressStatus& progress = *reported;
  if (!is_finished(pass.status) && all_train(pass)) {
    note_where_resumed(pass, state, progress.step.value_or(0));
  }
  round_for_display(progress);
  progress.updatedAt = pass.status.progress ? pass.status.progress->updatedAt : "";
  if (pass.status.progress == progress) return;
  progress.updatedAt = rfc3339(pass.seen.wall_now);
  pass.status.progress = std::move(reported);
}

// Waits until every agent of the round has reported. Agents of older versions report no holdings.
void derive_holdings(Pass& pass) {
  std::optional<HoldingsStatus> largest;
  if (pass.current.empty()) return;
  for (const PodView* pod : pass.in_round()) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr) return;
    if (state->holdings) take_largest(*state->holdings, largest);
  }
  pass.status.holdings = std::move(largest);
}

// A drain is over with its round, however that ended.
void derive_draining(Pass& pass) {
  const bool has_ended =
      is_finished(pass.status) || pass.status.worldHash != pass.seen.job.status.worldHash;
  if (has_ended && is_true(pass.status, kDraining)) pass.set(kDraining, false, "RoundEnded");
}

// Recorded with the members, and anew after a suspension.
void derive_fixed(Pass& pass) {
  if (is_true(pass.status, kSuspended)) {
    pass.status.fixed.clear();
  } else if (pass.status.fixed.empty() && !pass.members.empty()) {
    pass.status.fixed = fixed_fields(pass.spec());
  }
}

std::string display_state(const TrainingJobStatus& status) {
  if (is_true(status, kComplete)) return "Complete";
  if (is_true(status, kFailed)) return "Failed";
  if (is_true(status, kSuspended)) return "Suspended";
  if (is_true(status, kRestarting)) return "Restarting";
  if (is_true(status, kRunning)) return "Running";
  return status.worldHash.empty() ? "Pending" : "Forming";
}

}  // namespace

void derive_status(Pass& pass) {
  pass.status.observedGeneration = pass.job().metadata.generation;
  derive_progress(pass);
  derive_holdings(pass);
  derive_storage(pass);
  derive_draining(pass);
  derive_straggling(pass);
  const bool is_over = is_finished(pass.status);
  const bool is_valid =
      is_true(pass.status, kValid) || find_condition(pass.status, kValid) == nullptr;
  if (!is_over && is_valid) {
    derive_fixed(pass);
    derive_agent_image(pass);
    derive_scheduled(pass);
    derive_ready(pass);
    if (!is_true(pass.status, kSuspended)) derive_running(pass);
    derive_stuck(pass);
    derive_precision(pass);
    derive_network_policy(pass);
  }
  const std::optional<ProgressStatus>& progress = pass.status.progress;
  note_recomputed(pass.status, progress ? progress->step.value_or(0) : 0, pass.seen.wall_now);
  pass.status.state = display_state(pass.status);
}

}  // namespace lockstep::plan
