// Mistakes about slow ranks and bad losses.
#include <algorithm>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "tests/controller/sim/mutants.h"

namespace lockstep::sim {
namespace {

using Status = TrainingJobStatus;

Mutation with_spec(std::function<void(TrainingJobSpec&)> wrong) {
  Mutation mutation;
  mutation.plan = [wrong = std::move(wrong)](const plan::Observed& observed, TimePoint now,
                                             const plan::Limits& limits) {
    plan::Observed seen = observed;
    wrong(seen.job.spec);
    return plan::plan(seen, now, limits);
  };
  return mutation;
}

// `wrong` gets the status after the plan and before it. A write that changes nothing then is left
// out.
Mutation with_status(std::function<void(Status&, const Status&)> wrong) {
  Mutation mutation;
  mutation.plan = [wrong = std::move(wrong)](const plan::Observed& observed, TimePoint now,
                                             const plan::Limits& limits) {
    plan::Plan plan = plan::plan(observed, now, limits);
    std::erase_if(plan.actions, [&](plan::Action& action) {
      auto* write = std::get_if<plan::WriteStatus>(&action);
      if (write == nullptr) return false;
      wrong(write->status, observed.job.status);
      return write->status == observed.job.status;
    });
    return plan;
  };
  return mutation;
}

Mutation with_report(std::function<void(WorkerState&)> wrong) {
  return with_agents({}, [wrong = std::move(wrong)](AgentState& state) {
    for (WorkerState& worker : state.workers) wrong(worker);
  });
}

FailureRule* rule_about_slow_ranks(TrainingJobSpec& spec) {
  const auto found = std::ranges::find(spec.failure.rules, kStraggler, &FailureRule::event);
  return found == spec.failure.rules.end() ? nullptr : &*found;
}

void erase(Status& status, const char* type) {
  std::erase_if(status.conditions, [type](const Condition& one) { return one.type == type; });
}

void add_about_slow_ranks(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, Mutation mutation) {
    mutants.push_back({name, found_by, std::move(mutation)});
  };
  add("a slow rank is taken for the one before", "stragglers: a rank was named that was not slow",
      with_status([](Status& status, const Status& before) {
        for (Condition& condition : status.conditions) {
          const std::string start = "rank 1 ";
          const bool is_new = find_condition(before, kStraggling) == nullptr;
          if (condition.type != kStraggling || !is_new || !condition.message.starts_with(start)) {
            continue;
          }
          condition.message.replace(0, start.size(), "rank 0 ");
        }
      }));
  add("slow ranks are never named", "stragglers: a slow rank was not named",
      with_report([](WorkerState& worker) { worker.speed.reset(); }));
  add("a rank counts as slow by what its steps take",
      "stragglers: a rank was named that was not slow", with_report([](WorkerState& worker) {
        if (worker.speed) worker.speed->update_seconds = 100 * worker.speed->step_seconds;
      }));
  add("a slow rank is named until its round ends", "stragglers: a rank is still named",
      with_status([](Status& status, const Status& before) {
        const Condition* old = find_condition(before, kStraggling);
        for (Condition& condition : status.conditions) {
          const bool is_over = condition.type == kStraggling && old != nullptr &&
                               old->status == "True" && condition.reason == "AsFastAsOthers";
          if (is_over) condition = *old;
        }
      }));
  add("slow ranks are replaced without a rule", "stragglers: a round ended without a rule",
      with_spec([](TrainingJobSpec& spec) {
        if (rule_about_slow_ranks(spec) != nullptr || !spec.train) return;
        spec.failure.rules.push_back(
            {.exitCodes = {}, .event = kStraggler, .action = "RecreatePod", .after = "5s"});
      }));
  add("slow ranks are replaced too soon", "stragglers: a slow rank was replaced before its time",
      with_spec([](TrainingJobSpec& spec) {
        if (FailureRule* rule = rule_about_slow_ranks(spec)) rule->after = "5s";
      }));
  add("slow ranks are replaced after five minutes, whatever the rule says",
      "stragglers: a slow rank was not replaced", with_spec([](TrainingJobSpec& spec) {
        if (FailureRule* rule = rule_about_slow_ranks(spec)) rule->after.clear();
      }));
}

void add_about_losses(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, Mutation mutation) {
    mutants.push_back({name, found_by, std::move(mutation)});
  };
  constexpr char kOtherRules[] = "losses: an agent was assigned rules that the job does not have";
  add("agents get no rules about losses", kOtherRules,
      with_agents([](Assignment& assignment) { assignment.losses = {}; }));
  add("one agent is to skip what the others fail for", kOtherRules,
      with_agents([](Assignment& assignment) {
        if (assignment.node_index > 0) assignment.losses.not_finite = "Other";
      }));
  add("a loss that ends the job restarts it", "losses: a loss that ends the job did not",
      with_report([](WorkerState& worker) {
        const bool is_by_loss =
            worker.exit_code == kExitNotFinite || worker.exit_code == kExitLossSpike;
        if (is_by_loss) worker.exit_code = 1;
      }));
  add("a loss ends the job without its reason", "losses: a loss that ends the job did not",
      with_report([](WorkerState& worker) {
        if (worker.reason == kLossNotFinite || worker.reason == kLossSpike) worker.reason = "Error";
      }));
  add("a skipped batch counts as a failure",
      "losses: a job ended as not retryable without a bad loss",
      with_agents({}, [](AgentState& state) {
        if (!state.storage || state.storage->skips == 0 || state.workers.empty()) return;
        state.workers.front().running = false;
        state.workers.front().exit_code = kExitNotFinite;
        state.phase = "Failed";
      }));
  add("skipped batches are not told", "losses: a job completed without saying",
      with_status([](Status& status, const Status&) { erase(status, kBatchSkipped); }));
  add("a skipped batch is told twice", "losses: more batches were reported as skipped",
      with_agents({}, [](AgentState& state) {
        if (state.storage) state.storage->skips *= 2;
      }));
  add("BatchSkipped ends with its round", "losses: BatchSkipped did not stay",
      with_status([](Status& status, const Status& before) {
        if (status.round > before.round) erase(status, kBatchSkipped);
      }));
  add("steps are lost with every skipped batch", "losses: steps were lost that were not repeated",
      with_status([](Status& status, const Status& before) {
        const Condition* now = find_condition(status, kBatchSkipped);
        const Condition* old = find_condition(before, kBatchSkipped);
        if (now != nullptr && (old == nullptr || now->message != old->message)) {
          ++status.lost.steps;
        }
      }));
  add("all steps of a round that failed count as lost",
      "losses: a round resumed elsewhere than status tells", with_agents({}, [](AgentState& state) {
        if (state.storage && state.storage->resumed_step > 0) state.storage->resumed_step = 0;
      }));
}

}  // namespace

void add_training(std::vector<Mutant>& mutants) {
  add_about_slow_ranks(mutants);
  add_about_losses(mutants);
}

}  // namespace lockstep::sim
