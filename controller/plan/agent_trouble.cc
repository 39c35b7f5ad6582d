#include "controller/plan/agent_trouble.h"

#include <algorithm>

#include "controller/plan/names.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/servers.h"
#include "controller/plan/world.h"

namespace lockstep::plan {
namespace {

AgentTrouble refused_token(const Pass& pass, const PodView& pod) {
  return {
      .reason = "AgentRefusesToken",
      .message = "the agent of " + pod.name +
                 " does not accept the job's token: the content of Secret " +
                 token_secret_name(pass.job().metadata) +
                 " is from another key than the controller's, or is not the controller's, " +
                 (pod.is_signed ? "or the agent is older than the controller. " : "or missing. ") +
                 "The job's state is unknown until the controller has that key (again), or "
                 "until the Secret is deleted and the job is suspended and resumed"};
}

AgentTrouble unsupported_protocol(const PodView& pod, int64_t protocol) {
  const bool is_newer = protocol > kProtocolNewest;
  return {.reason = is_newer ? "AgentTooNew" : "AgentTooOld",
          .message = "the agent of " + pod.name + " speaks protocol version " +
                     std::to_string(protocol) + ", but the controller supports versions " +
                     std::to_string(kProtocolOldest) + " to " + std::to_string(kProtocolNewest) +
                     ". The job's state is unknown until the controller is replaced by " +
                     (is_newer ? "a newer" : "an older") +
                     " version of Lockstep, or until the job is suspended and resumed, which "
                     "recreates its pods"};
}

AgentTrouble reported_too_much(const PodView& pod) {
  return {.reason = "AgentReportsTooMuch",
          .message = "the last report of the agent of " + pod.name +
                     " is not used, because the reports of this job's agents take more memory than "
                     "the controller gives one job. What it knows of that pod is older. If the "
                     "job's program has not changed its agent, please report this as a bug"};
}

// Returns how the ranks share the state: "shards parameters", "offloads optimizer".
std::vector<std::string> sharing_parts(const WorldLayout& layout) {
  const StateSharing none;
  if (shares_nothing(layout)) return {};
  std::vector<std::string> parts;
  if (layout.sharding != none.sharding) parts.push_back("shards " + layout.sharding);
  if (layout.sequenceParallel) parts.push_back("divides sequences");
  if (layout.offload != none.offload) parts.push_back("offloads " + layout.offload);
  if (layout.exchange != none.exchange) parts.push_back("exchanges by " + layout.exchange);
  if (layout.transferPrecision != none.transferPrecision) {
    parts.push_back("sends activations in " + layout.transferPrecision);
  }
  if (parts.empty()) parts.push_back("reduces in " + layout.reducePrecision);
  return parts;
}

// Returns what an ordinary world does not have: "leaves out nodes, and has servers".
std::string special_parts(const WorldAssignment& world, const TrainingJobSpec& spec,
                          const WorkerWishes& wishes) {
  const std::optional<TrainSpec>& train = spec.train;
  std::string text;
  const auto add = [&](bool has_it, const std::string& part) {
    if (has_it) text += (text.empty() ? "" : ", and ") + part;
  };
  const int64_t last = std::ranges::max(world.members, {}, &WorldMember::index).index;
  add(std::ssize(world.members) <= last, "leaves out nodes");
  add(has_servers(world), "has servers");
  add(wishes.has_new_worker, "has workers that were started anew");
  add(wishes.has_moved_server, "has servers in other pods than when it began");
  add(wishes.has_places, "has servers that may come and go");
  add(wishes.has_transfers, "sends fewer bits to servers, or lets rows expire");
  for (std::string& part : sharing_parts(world.layout)) add(true, std::move(part));
  add(world.is_encrypted, "encrypts its traffic");
  add(world.tensor > 1, "shares layers");
  add(world.pipeline > 1, "runs a pipeline");
  add(train && train->model.family == "mlp", "trains an mlp");
  add(train && is_convnet(train->model), "trains a convolutional network");
  add(train && is_click_family(train->model.family), "trains a click model");
  add(train && train->optimizer.name != "adamw", "uses another optimizer than adamw");
  add(train && train->timeline.everySteps > 0, "records a timeline");
  add(train && !shares_evenly(train->batch, world.data), "shares a batch unevenly");
  add(spec.checkpoint.memory.has_value(), "keeps states in memory");
  add(wishes_of(spec).losses != LossRules{}, "has rules about losses");
  return text.empty() ? "reorders nodes" : text;
}

AgentTrouble too_old_for_world(const PodView& pod, int64_t protocol, const WorldAssignment& world,
                               const Pass& pass, const std::string& round) {
  const TrainingJobSpec& spec = pass.spec();
  const int64_t needed = protocol_needed(world, spec.train, wishes_of_round(pass));
  return {.reason = "AgentTooOld",
          .message = "the agent of " + pod.name + " speaks protocol version " +
                     std::to_string(protocol) + ", but the " + round + " " +
                     special_parts(world, spec, wishes_of_round(pass)) + ", which needs version " +
                     std::to_string(needed) + ". The " + round +
                     " starts once the job is suspended and resumed, which recreates "
                     "its pods with the controller's version of Lockstep. If spec.image has an "
                     "older version, change it meanwhile"};
}

AgentTrouble too_old_to_join(const Pass& pass, const PodView& pod) {
  return {.reason = "AgentTooOld",
          .message = "the agent of " + pod.name + " speaks protocol version " +
                     std::to_string(pass.last_report(&pod)->protocol) +
                     ", but a server that is added to a round needs version " +
                     std::to_string(kProtocolWithPlaces) +
                     ". Training goes on without it until the job is suspended and resumed, which "
                     "recreates its pods with the controller's version of Lockstep. If spec.image "
                     "has an older version, change it meanwhile"};
}

// Returns the trouble of an agent of the round that speaks a served version, but does not know
// what its world has.
std::optional<AgentTrouble> trouble_with_world(const Pass& pass, const std::string& round) {
  const auto pods = pass.in_round();
  const auto first_below = [&](int64_t protocol) {
    return std::ranges::find_if(pods, [&](const PodView* pod) {
      const AgentView* agent = pass.agent(pod);
      return agent != nullptr && agent->state && agent->state->protocol < protocol;
    });
  };
  if (first_below(kProtocolNewest) == pods.end()) return std::nullopt;
  const Result<WorldAssignment> world = world_of(pass, pass.status.round);
  if (!world.ok()) return std::nullopt;
  const auto old = first_below(protocol_needed(*world, pass.spec().train, wishes_of_round(pass)));
  if (old == pods.end()) return std::nullopt;
  return too_old_for_world(**old, pass.agent(*old)->state->protocol, *world, pass, round);
}

}  // namespace

std::optional<AgentTrouble> agent_trouble(const Pass& pass) {
  const std::vector<int64_t> wanted = wanted_nodes(pass);
  for (const PodView* pod : pass.current) {
    const AgentView* agent = pass.agent(pod);
    if (agent == nullptr) continue;
    const bool is_left_out =
        !pass.is_in_round(pod->node_index) && !std::ranges::binary_search(wanted, pod->node_index);
    if (is_left_out) continue;
    if (agent->refuses_token) return refused_token(pass, *pod);
    if (agent->has_unsupported_protocol())
      return unsupported_protocol(*pod, agent->state->protocol);
    if (agent->reports_too_much) return reported_too_much(*pod);
  }
  if (const PodView* pod = pod_too_old_to_join(pass)) return too_old_to_join(pass, *pod);
  return all_have_assignment(pass) ? std::nullopt : trouble_with_world(pass, "round");
}

std::optional<AgentTrouble> trouble_of_next_round(const Pass& pass) {
  return all_have_assignment(pass) ? trouble_with_world(pass, "next round") : std::nullopt;
}

}  // namespace lockstep::plan
