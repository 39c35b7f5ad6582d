#include "controller/plan/precision.h"

#include "controller/plan/conditions.h"

namespace lockstep::plan {
namespace {

constexpr size_t kRanksNamed = 8;

// "rank 1 on node-b, rank 3 on node-c and 5 more"; empty if no agent reports a rank without bf16.
std::string ranks_without_bf16(const Pass& pass) {
  std::string text;
  size_t count = 0;
  for (const PodView* pod : pass.in_round()) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr) continue;
    for (const WorkerState& worker : state->workers) {
      if (!worker.lacks_bf16 || ++count > kRanksNamed) continue;
      text += (text.empty() ? "rank " : ", rank ") + std::to_string(worker.rank);
      if (!pod->node_name.empty()) text += " on " + pod->node_name;
    }
  }
  if (count > kRanksNamed) text += " and " + std::to_string(count - kRanksNamed) + " more";
  return text;
}

}  // namespace

void derive_precision(Pass& pass) {
  const std::optional<ProgressStatus>& progress = pass.status.progress;
  if (!pass.spec().train || !progress || progress->precision.empty()) return;
  const bool reduced = pass.spec().train->precision == "bf16" && progress->precision == "fp32";
  const bool was_reduced = is_true(pass.status, kPrecisionReduced);
  if (!reduced && !was_reduced) return;
  ConditionUpdate update{.type = kPrecisionReduced,
                         .value = reduced,
                         .reason = reduced ? "NoNativeBf16" : "AsRequested",
                         .time = rfc3339(pass.seen.wall_now),
                         .generation = pass.job().metadata.generation};
  if (reduced) {
    const std::string ranks = ranks_without_bf16(pass);
    // Reports may be missing, after a restart of the controller; the ranks were named before.
    if (was_reduced && ranks.empty()) return;
    update.message =
        "spec.train.precision is bf16, but the job computes in fp32: neither AVX512_BF16 nor AMX "
        "on the CPU of " +
        (ranks.empty() ? "some rank" : ranks);
    if (!was_reduced) pass.event(true, kPrecisionReduced, update.message);
  }
  set_condition(pass.status, std::move(update));
}

}  // namespace lockstep::plan
