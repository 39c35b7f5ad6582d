#include "tests/controller/search/cluster.h"

#include <algorithm>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/names.h"
#include "tests/controller/search/digest.h"
#include "tests/controller/search/properties.h"

namespace lockstep::search {
namespace {

using sim::member;

constexpr int64_t kGraceSeconds = 35;
constexpr int64_t kExitKilled = 137;
constexpr double kJustNow = 0.001;

WorkerState& worker_of(Agent& agent) {
  return agent.state.workers.front();
}

bool has_worker(const Agent& agent) {
  return !agent.state.workers.empty();
}

// Returns the agent of that member of the round, if it answers; nullptr if it is gone.
const Agent* find_peer(const World& world, const WorldMember& member) {
  for (const auto& [uid, agent] : world.agents) {
    const bool is_it = agent.index == member.index && agent.incarnation == member.incarnation;
    if (is_it && !agent.is_silent) return &agent;
  }
  return nullptr;
}

// A rank that has ended well forms no more, so one that still forms waits for it in vain.
bool is_lost_for(const Agent& agent, const Agent* peer) {
  if (peer == nullptr || peer->state.round > agent.state.round) return true;
  if (peer->state.hash != agent.state.hash) return false;
  const WorkerState& worker = peer->state.workers.front();
  const bool forms = agent.state.workers.front().phase == WorkerPhase::kForming;
  return !worker.running && (worker.exit_code != 0 || forms);
}

void end_pod(World& world, const std::string& key, const char* reason, int64_t exit_code) {
  world.change_store([&] {
    world.store.update(loop::kPods, key, [&](Json& pod) {
      pod["status"]["phase"] = exit_code == 0 ? "Succeeded" : "Failed";
      if (exit_code != 0) pod["status"]["reason"] = reason;
      pod["status"]["containerStatuses"] =
          Json::array({{{"name", plan::kNodeContainer},
                        {"state", {{"terminated", {{"exitCode", exit_code}}}}}}});
    });
  });
}

void fail_worker(World& world, Agent& agent, int64_t exit_code, const char* reason) {
  WorkerState& worker = worker_of(agent);
  worker.running = false;
  worker.exit_code = exit_code;
  worker.signal = exit_code > 128 ? exit_code - 128 : 0;
  worker.reason = reason;
  agent.state.phase = "Failed";
  agent.state.failed_seconds_ago = kJustNow;
  ++agent.state.sequence;
  world.history.rounds[agent.state.round].failed.insert({agent.index, agent.incarnation});
}

void carry_out(Agent& agent, const std::shared_ptr<const Assignment>& assignment) {
  if (agent.state.round > 0) agent.old = agent.state;
  agent.assignment = assignment;
  AgentState& state = agent.state;
  state.round = assignment->world.round;
  state.hash = assignment->hash;
  state.phase = "Running";
  state.failed_seconds_ago = 0;
  WorkerState worker;
  worker.rank = rank_of(assignment->world, place_in_round(*assignment), 0);
  worker.running = true;
  worker.phase = WorkerPhase::kForming;
  state.workers = {worker};
  ++state.sequence;
}

// As an agent does (common/api/agent_messages.h).
Result<AgentState> put(World& world, const Request& request) {
  const Agent* at = world.agent_at(request.agent.ip);
  if (at == nullptr) return unavailable("no agent answers");
  if (at->is_silent) return timed_out("no answer");
  Agent& agent = world.agents.at(at->state.boot_id);
  const Assignment& assignment = *request.assignment;
  check_assignment(world, assignment);
  const int64_t round = assignment.world.round;
  const bool is_other = round == agent.state.round && assignment.hash != agent.state.hash;
  if (!place_of(assignment.world, agent.index)) return invalid("the round leaves this node out");
  if (round < agent.state.round || is_other) return conflict("an older round or another hash");
  if (assignment.action == "Exit") {
    AgentState last = agent.state;
    last.phase = "Exiting";
    end_pod(world, std::string(agent.pod), "Error", assignment.exit_code);
    return last;
  }
  if (round > agent.state.round) carry_out(agent, request.assignment);
  return agent.state;
}

// Answers a poll at once, so that a mutation's client can change the report.
class ReportingAgent final : public loop::AgentClient {
 public:
  explicit ReportingAgent(AgentState state) : state_(std::move(state)) {}
  void put_assignment(const loop::AgentAddress&, const std::shared_ptr<const Assignment>&, int64_t,
                      Done) override {}
  void poll_state(const loop::AgentAddress&, const loop::StatePoll&, Done done) override {
    done(state_);
  }
  void forget(const loop::AgentAddress&) override {}

 private:
  AgentState state_;
};

Answer answer_of_agent(Result<AgentState> state) {
  Answer answer;
  Digester digest;
  digest.add(state.ok() ? 1 : 0);
  if (state.ok()) digest.add_signed(state->round).add(state->phase).add_signed(state->sequence);
  answer.digest = digest.value();
  answer.api.outcome = state.ok() ? loop::ApiOutcome::kOk : loop::ApiOutcome::kUnavailable;
  answer.agent = std::move(state);
  return answer;
}

Answer answer_of_server(const World& world, loop::ApiReply reply) {
  Answer answer;
  Digester digest;
  digest.add(static_cast<uint64_t>(reply.outcome));
  const std::string version = string_or(member(*reply.body, "metadata"), "resourceVersion", "");
  if (!version.empty()) {
    answer.version = std::stoll(version);
    answer.uid = string_or(member(*reply.body, "metadata"), "uid", "");
    const bool is_job = world.job != nullptr && world.job->version == answer.version;
    digest.add(is_job ? world.job->digest : read_document(true, reply.body, nullptr)->digest);
  }
  answer.digest = digest.value();
  answer.api = std::move(reply);
  return answer;
}

Agent agent_of(const Document& pod, const std::string& ip) {
  Agent agent{
      .pod = pod.key, .ip = ip, .index = pod.pod->node_index, .incarnation = pod.pod->incarnation};
  agent.state.sequence = 1;
  agent.state.boot_id = pod.uid;
  agent.state.job_uid = pod.pod->owner_uid;
  agent.state.node_index = agent.index;
  agent.state.incarnation = agent.incarnation;
  agent.state.phase = "Idle";
  return agent;
}

void start_pod(World& world, const std::string& key) {
  const DocumentPtr pod = world.pods.at(key);
  const std::string ip =
      "10.0." + std::to_string(pod->pod->node_index) + "." + std::to_string(pod->pod->incarnation);
  world.change_store([&] {
    world.store.update(loop::kPods, key, [&](Json& running) {
      running["spec"]["nodeName"] = "machine-" + std::to_string(pod->pod->node_index);
      running["status"] = {{"phase", "Running"}, {"podIP", ip}};
    });
  });
  world.agents[pod->uid] = agent_of(*pod, ip);
}

void edit_job(World& world, const std::function<void(Json&)>& change) {
  world.change_store([&] { world.store.update(loop::kTrainingJobs, kJobKey, change); });
}

}  // namespace

Answer serve(World& world, const Request& request, bool is_stray) {
  if (request.assignment != nullptr) return answer_of_agent(put(world, request));
  const DocumentPtr before = world.job;
  loop::ApiReply reply;
  world.change_store([&] {
    world.store.on_write = [&world](const loop::ApiRequest& write, const Json* stored,
                                    std::string_view) { check_request(world, write, stored); };
    reply = world.store.serve(request.api, world.wall_now(), "controller");
    world.store.on_write = nullptr;
  });
  if (reply.ok() && request.api.verb == loop::ApiVerb::kReplaceStatus) {
    check_status(world, *before, *world.job, is_stray);
  }
  return answer_of_server(world, std::move(reply));
}

bool is_void(const World& world, const Request& request) {
  if (request.assignment != nullptr) {
    const Agent* agent = world.agent_at(request.agent.ip);
    const Assignment& assignment = *request.assignment;
    const int64_t round = assignment.world.round;
    const auto known = world.history.rounds.find(round);
    const bool is_allowed =
        known != world.history.rounds.end() && known->second.hash == assignment.hash;
    if (agent == nullptr || !is_allowed || assignment.action == "Exit") return false;
    if (!place_of(assignment.world, agent->index)) return false;
    return round < agent->state.round ||
           (round == agent->state.round && assignment.hash == agent->state.hash);
  }
  const loop::ApiRequest& api = request.api;
  if (sim::is_dry_run(api)) return true;
  if (api.verb == loop::ApiVerb::kReplaceStatus) {
    return world.job == nullptr || world.job->version > request.job->version;
  }
  const bool is_pod = api.type.plural == loop::kPods.plural;
  if (is_pod && api.verb == loop::ApiVerb::kDelete && !request.uid.empty()) {
    return !world.has_pod(request.uid);
  }
  const bool is_secret = api.type.plural == loop::kSecrets.plural;
  return is_secret && api.verb == loop::ApiVerb::kCreate &&
         !world.store.all(loop::kSecrets).empty();
}

Answer timeout() {
  Answer answer = answer_of_agent(timed_out("lost"));
  answer.api = {.outcome = loop::ApiOutcome::kTimeout, .message = "lost"};
  return answer;
}

Answer refusal() {
  Answer answer = timeout();
  answer.api = {.outcome = loop::ApiOutcome::kForbidden, .message = "exceeded quota"};
  answer.digest = Digester().add("quota").value();
  return answer;
}

void touch_job(World& world) {
  edit_job(world, [](Json& job) {
    Json& labels = job["metadata"]["labels"];
    labels["touched"] = std::to_string(labels.size());
    labels[std::to_string(labels.size())] = "";
  });
}

bool is_over(const World& world) {
  return is_finished(world.job->job.status);
}

bool can_start(const World& world, const plan::PodView& pod) {
  const bool has_secret = !world.store.all(loop::kSecrets).empty();
  return pod.live() && pod.ip.empty() && has_secret;
}

bool has_lost_a_peer(const World& world, const Agent& agent) {
  if (!has_worker(agent) || !agent.state.workers.front().running) return false;
  const auto& members = agent.assignment->world.members;
  return std::ranges::any_of(members, [&](const WorldMember& member) {
    const bool is_itself = member.index == agent.index && member.incarnation == agent.incarnation;
    return !is_itself && is_lost_for(agent, find_peer(world, member));
  });
}

bool can_train(const World& world, const Agent& agent) {
  if (!has_worker(agent) || agent.is_silent) return false;
  const auto& members = agent.assignment->world.members;
  if (members.front().index != agent.index) return false;
  return std::ranges::all_of(members, [&](const WorldMember& member) {
    const Agent* peer = find_peer(world, member);
    if (peer == nullptr || peer->state.hash != agent.state.hash) return false;
    const WorkerState& worker = peer->state.workers.front();
    return worker.running && worker.phase == WorkerPhase::kForming;
  });
}

bool trains(const World&, const Agent& agent) {
  if (!has_worker(agent) || agent.is_silent) return false;
  const WorkerState& worker = agent.state.workers.front();
  return worker.running && worker.phase == WorkerPhase::kTraining;
}

bool can_be_killed(const World&, const Agent& agent) {
  return has_worker(agent) && !agent.is_silent && agent.state.workers.front().running;
}

AgentState report_of(const World& world, const std::string& uid) {
  ReportingAgent agent(world.agents.at(uid).state);
  const auto client = world.mutation->agents ? world.mutation->agents(agent) : nullptr;
  AgentState report;
  const auto take = [&report](Result<AgentState> state) { report = *std::move(state); };
  (client ? *client : agent).poll_state({}, {}, take);
  return report;
}

void apply_to_job(World& world, MoveKind kind) {
  const Json spec = member(*world.job->json, "spec");
  switch (kind) {
    case MoveKind::kSuspend:
      world.history.was_suspended = true;
      return edit_job(world, [](Json& job) { job["spec"]["suspend"] = true; });
    case MoveKind::kResume:
      return edit_job(world, [](Json& job) { job["spec"]["suspend"] = false; });
    case MoveKind::kScale:
      return edit_job(world, [&](Json& job) { job["spec"]["nodes"] = spec["nodes"] == 2 ? 1 : 2; });
    default:
      world.change_store([&] { world.store.remove(loop::kTrainingJobs, kJobKey); });
  }
}

void apply_to_pod(World& world, const Move& move) {
  if (is_fault(move.kind)) ++world.history.causes;
  switch (move.kind) {
    case MoveKind::kStart:
      return start_pod(world, move.object);
    case MoveKind::kEvict:
      return end_pod(world, move.object, "Evicted", kExitKilled);
    case MoveKind::kDeletePod:
    case MoveKind::kCollect:
      return world.change_store([&] {
        world.store.mark_deleted(loop::kPods, move.object, world.wall_now(), kGraceSeconds);
      });
    default:
      world.change_store([&] { world.store.remove(loop::kPods, move.object); });
  }
}

void apply_to_agent(World& world, const Move& move) {
  Agent& agent = world.agents.at(move.object);
  switch (move.kind) {
    case MoveKind::kNotice:
      // The rank may know that a peer is gone long before its pod is found lost. The loss of a
      // machine counts once.
      if (world.history.rounds[agent.state.round].failed.empty() && world.lost_pods.empty())
        ++world.history.causes;
      return fail_worker(world, agent, kExitPeerLost, "Error");
    case MoveKind::kKillWorker:
      ++world.history.causes;
      return fail_worker(world, agent, kExitKilled, "Signal");
    case MoveKind::kLoseMachine:
      ++world.history.causes;
      world.lost_pods.insert(move.object);
      agent.is_silent = true;
      return;
    case MoveKind::kTrain:
      check_training(world, agent.state.round);
      for (auto& [uid, peer] : world.agents) {
        if (peer.state.hash != agent.state.hash || uid == move.object) continue;
        worker_of(peer).phase = WorkerPhase::kTraining;
        ++peer.state.sequence;
      }
      worker_of(agent).phase = WorkerPhase::kTraining;
      ++agent.state.sequence;
      return;
    default:
      worker_of(agent).running = false;
      worker_of(agent).reason = "Completed";
      worker_of(agent).phase = WorkerPhase::kDone;
      agent.state.phase = "Completed";
      ++agent.state.sequence;
      world.history.rounds[agent.state.round].ended.insert(agent.index);
  }
}

}  // namespace lockstep::search
