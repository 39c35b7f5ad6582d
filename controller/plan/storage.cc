#include "controller/plan/storage.h"

#include <algorithm>
#include <cstdlib>

#include "controller/plan/conditions.h"

namespace lockstep::plan {
namespace {

// Returns the newest report about the storage, or nullptr. An agent may still report an old round
// in which its node had rank 0; only the last round before the current one counts.
const AgentState* storage_report(const Pass& pass) {
  const AgentState* newest = nullptr;
  for (const PodView* pod : pass.current) {
    const AgentState* state = pass.last_report(pod);
    if (state == nullptr || !state->storage) continue;
    const bool is_last = state->round == pass.status.round - 1;
    if (pass.report_of_round(pod) == nullptr && !is_last) continue;
    if (newest == nullptr || state->round > newest->round) newest = state;
  }
  return newest;
}

bool has_ended(const Pass& pass, const AgentState& state) {
  return state.round < pass.status.round ||
         std::any_of(state.workers.begin(), state.workers.end(),
                     [](const WorkerState& worker) { return worker.rank == 0 && !worker.running; });
}

void derive_failing(Pass& pass, const StorageState& storage) {
  const bool was_failing = is_true(pass.status, kCheckpointFailing);
  if (storage.failed_step < 0) {
    if (was_failing && storage.saved > 0) pass.set(kCheckpointFailing, false, "Saved", "");
    return;
  }
  const std::string message = "the checkpoint of step " + std::to_string(storage.failed_step) +
                              " could not be saved: " + storage.failure;
  if (!was_failing) pass.event(true, kCheckpointFailing, message);
  pass.set(kCheckpointFailing, true, "SaveFailed", message);
}

// "training resumed from step 400, because the checkpoint of step 500 (one of 2) is corrupt and was
// set aside: <reason>".
std::string set_aside_text(const StorageState& storage) {
  std::string text;
  if (storage.resumed_step == 0) text = "training started over at step 0, because ";
  if (storage.resumed_step > 0) {
    text = "training resumed from step " + std::to_string(storage.resumed_step) + ", because ";
  }
  text += "the checkpoint of step " + std::to_string(storage.set_aside_step);
  if (storage.set_aside > 1) text += " (one of " + std::to_string(storage.set_aside) + ")";
  return text + " is corrupt and was set aside: " + storage.set_aside_reason;
}

void derive_set_aside(Pass& pass, const AgentState& state) {
  const StorageState& storage = *state.storage;
  const Condition* before = find_condition(pass.status, kCheckpointSetAside);
  const bool was_set_aside = is_true(pass.status, kCheckpointSetAside);
  if (storage.set_aside_step < 0) {
    const bool resumed = storage.resumed_step >= 0;
    if (was_set_aside && resumed) pass.set(kCheckpointSetAside, false, "Loaded", "");
    return;
  }
  if (storage.resumed_step < 0 && !has_ended(pass, state)) return;
  std::string message = set_aside_text(storage);
  if (was_set_aside && before->message == message) return;
  pass.event(true, kCheckpointSetAside, message);
  pass.set(kCheckpointSetAside, true, "Corrupt", std::move(message));
}

// Returns how many the message tells of: "... (2 so far)".
int64_t skips_told(const Condition* condition) {
  const size_t at = condition == nullptr ? std::string::npos : condition->message.rfind('(');
  if (at == std::string::npos) return 0;
  return std::strtoll(condition->message.c_str() + at + 1, nullptr, 10);
}

// Stays true: the job's result misses those batches.
void derive_skipped(Pass& pass, const StorageState& storage) {
  const Condition* before = find_condition(pass.status, kBatchSkipped);
  if (storage.skips == 0) return;
  if (storage.skip.empty() && skips_told(before) >= storage.skips) return;  // by an earlier round
  const std::string what =
      storage.skip.empty() ? "training went on without batches in an earlier round" : storage.skip;
  const std::string message = what + " (" + std::to_string(storage.skips) + " so far)";
  if (before != nullptr && before->message == message) return;
  pass.event(true, kBatchSkipped, message);
  pass.set(kBatchSkipped, true, "LossRule", message);
}

}  // namespace

void derive_storage(Pass& pass) {
  if (!pass.spec().train) return;
  const AgentState* state = storage_report(pass);
  if (state == nullptr) return;
  derive_failing(pass, *state->storage);
  derive_set_aside(pass, *state);
  derive_skipped(pass, *state->storage);
}

}  // namespace lockstep::plan
