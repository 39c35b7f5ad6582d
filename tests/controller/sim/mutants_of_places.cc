// Mistakes in the mapping between nodes, places and ranks.
#include <algorithm>
#include <map>
#include <memory>

#include "controller/plan/pass.h"
#include "controller/plan/round_nodes.h"
#include "tests/controller/sim/changed_polls.h"
#include "tests/controller/sim/mutants.h"
#include "tests/controller/sim/round_choices.h"

namespace lockstep::sim {
namespace {

using Status = TrainingJobStatus;

// Replaces a policy.
Mutation with_policy(plan::Policy right, plan::Policy wrong) {
  Mutation mutation = leaving_out_nodes();
  std::vector<plan::Policy> policies;
  for (const plan::Policy policy : plan::all_policies()) {
    policies.push_back(policy == right ? wrong : policy);
  }
  mutation.plan = plan_with(std::move(policies));
  return mutation;
}

Mutation with_plan(std::function<void(plan::Plan&, const plan::Observed&)> wrong) {
  Mutation mutation = leaving_out_nodes();
  mutation.plan = [right = mutation.plan, wrong = std::move(wrong)](
                      const plan::Observed& observed, TimePoint now, const plan::Limits& limits) {
    plan::Plan plan = right(observed, now, limits);
    wrong(plan, observed);
    return plan;
  };
  return mutation;
}

Mutation with_status(std::function<void(Status&, const Status&)> wrong) {
  return with_plan([wrong = std::move(wrong)](plan::Plan& plan, const plan::Observed& observed) {
    for (plan::Action& action : plan.actions) {
      if (auto* write = std::get_if<plan::WriteStatus>(&action)) {
        wrong(write->status, observed.job.status);
      }
    }
  });
}

Mutation with_put(std::function<void(Assignment&)> wrong) {
  Mutation mutation = with_agents(std::move(wrong));
  mutation.plan = leaving_out_nodes().plan;
  mutation.oldest_protocol = kProtocolWithLayouts;
  return mutation;
}

Mutation with_report(std::function<void(AgentState&)> wrong) {
  Mutation mutation = with_agents({}, std::move(wrong));
  mutation.plan = leaving_out_nodes().plan;
  mutation.oldest_protocol = kProtocolWithLayouts;
  return mutation;
}

// Agents report the rank that they had in the first round that was heard of.
std::unique_ptr<loop::AgentClient> with_stale_ranks(loop::AgentClient& real) {
  const auto first_ranks = std::make_shared<std::map<std::string, int64_t>>();  // by boot_id
  return std::make_unique<ChangedPolls>(
      real, [first_ranks](const loop::AgentAddress&, AgentState& state) {
        if (state.workers.empty()) return;
        int64_t& rank = state.workers.front().rank;
        rank = first_ranks->emplace(state.boot_id, rank).first->second;
      });
}

// The policy takes the round for one that has all nodes.
template <plan::Verdict (*kPolicy)(plan::Pass&)>
plan::Verdict with_all_nodes(plan::Pass& pass) {
  const std::vector<int64_t> nodes = std::exchange(pass.round_nodes, plan::all_members(pass));
  const plan::Verdict verdict = kPolicy(pass);
  pass.round_nodes = nodes;
  return verdict;
}

// A round forms only once all members' pods run.
plan::Verdict assignment_to_all(plan::Pass& pass) {
  const bool all = plan::can_begin(pass, plan::all_members(pass));
  return pass.formed() || all ? plan::assignment(pass) : plan::Verdict::kNext;
}

void add_wrong_ranks(std::vector<Mutant>& mutants) {
  mutants.push_back(
      {"agents derive ranks from the node's index", "places", with_report([](AgentState& state) {
         for (WorkerState& worker : state.workers) worker.rank = state.node_index;
       })});
  Mutation stale = leaving_out_nodes();
  stale.agents = with_stale_ranks;
  mutants.push_back({"an agent keeps its first rank when it comes back", "places", stale});
  mutants.push_back(
      {"a rank is taken for the node of that index", "restarts: a worker's failure was recorded",
       with_status([](Status& status, const Status& before) {
         const bool is_new =
             status.lastFailure &&
             (!before.lastFailure || before.lastFailure->number != status.lastFailure->number);
         if (!is_new || status.lastFailure->rank < 0) return;
         status.lastFailure->nodeIndex = status.lastFailure->rank;
       })});
}

void add_wrong_nodes(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, Mutation mutation) {
    mutants.push_back({name, found_by, std::move(mutation)});
  };
  add("assignments number their nodes from 0", "places", with_put([](Assignment& assignment) {
        int64_t place = 0;
        for (WorldMember& member : assignment.world.members) {
          if (member.index == assignment.node_index) assignment.node_index = place;
          member.index = place++;
        }
      }));
  add("a node that is left out gets an assignment", "places",
      with_plan([](plan::Plan& plan, const plan::Observed& seen) {
        for (size_t i = 0; i < plan.actions.size(); ++i) {
          const auto* put = std::get_if<plan::PutAssignment>(&plan.actions[i]);
          if (put == nullptr) continue;
          plan::PutAssignment wrong = *put;
          for (const plan::PodView& pod : seen.pods) {
            if (place_of(wrong.assignment->world, pod.node_index) || pod.ip.empty()) continue;
            wrong.target = {.pod_uid = pod.uid, .pod_name = pod.name, .ip = pod.ip, .node = ""};
            wrong.node_index = pod.node_index;
            plan.actions.push_back(wrong);
            return;
          }
        }
      }));
  add("status does not tell who is left out", "rounds",
      with_status([](Status& status, const Status&) {
        if (status.rendezvous) status.rendezvous->nodeIndices.clear();
      }));
  add("completion waits for nodes that are left out", "convergence",
      with_policy(plan::completion, with_all_nodes<plan::completion>));
  add("a round waits for the pods of nodes that are left out", "convergence",
      with_policy(plan::assignment, assignment_to_all));
  add("the loss of a node that is left out ends the round", "restarts",
      with_policy(plan::failure, with_all_nodes<plan::failure>));
}

}  // namespace

void add_places(std::vector<Mutant>& mutants) {
  add_wrong_ranks(mutants);
  add_wrong_nodes(mutants);
}

}  // namespace lockstep::sim
