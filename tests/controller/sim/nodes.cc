#include "tests/controller/sim/nodes.h"

#include <algorithm>

#include "common/api/worker_config.h"
#include "controller/loop/informer.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_view.h"

namespace lockstep::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kNoticed = milliseconds(500);  // until the others notice what happened to one
constexpr Duration kFormingMax = seconds(60);
constexpr Duration kSavingMax = seconds(3);
constexpr Duration kGrace = seconds(30);  // of a pod that is deleted
constexpr Duration kRemovalMin = std::chrono::minutes(10);
constexpr Duration kRemovalMax = std::chrono::minutes(20);
constexpr int kMachines = 7;
constexpr int64_t kCheckpointEvery = 5;
constexpr Duration kMountRetry = seconds(2);
constexpr Duration kStartDelayMin = seconds(10);
constexpr Duration kStartDelayMax = std::chrono::minutes(4);
constexpr int64_t kStepsApart = 2;  // between the ends of a command's ranks
constexpr char kByRankZero[] = "rank-0";
constexpr char kByAll[] = "all";
constexpr int kExitOfCommand = 1;  // when it has lost a peer

// The workload of a round's workers.
struct Work {
  int64_t steps = 0;  // of rank 0
  bool is_command = false;
  bool by_rank_zero = false;

  // Returns whether the rank has ended at that step.
  bool ends(int64_t rank, int64_t step) const {
    if (by_rank_zero && rank > 0) return false;
    return step >= steps + (is_command ? kStepsApart * rank : 0);
  }
};

Work work_of(const Assignment& assignment) {
  if (assignment.train) return {.steps = assignment.train->steps};
  return {.steps = std::stoll(assignment.command.at(1)),
          .is_command = true,
          .by_rank_zero = assignment.command.at(2) == kByRankZero};
}

WorkerState& worker_of(Node& node) {
  return node.state.workers.front();
}

// Returns the key of the Secret that the pod mounts; empty if none.
std::string secret_key_of(const Json& pod) {
  for (const Json& volume : member(member(pod, "spec"), "volumes")) {
    const std::string name = string_or(member(volume, "secret"), "secretName", "");
    if (!name.empty()) return string_or(member(pod, "metadata"), "namespace", "") + "/" + name;
  }
  return "";
}

// Refuses an assignment that the agent cannot carry out. One of an older version knows ordinary
// worlds alone.
Status check_world(const Node& node, const Assignment& assignment) {
  const int64_t needed = protocol_needed(assignment.world, assignment.train,
                                         {.keeps_states = assignment.checkpoint.memory.has_value(),
                                          .losses = assignment.losses,
                                          .has_copies = has_copies(assignment),
                                          .has_moved_server = has_moved_server(assignment),
                                          .has_new_worker = has_new_worker(assignment),
                                          .has_places = has_places(assignment)});
  if (assignment.protocol > node.state.protocol || assignment.protocol < needed) {
    return invalid("unsupported protocol version");
  }
  if (assignment.node_index != node.index) return invalid("the assignment is another node's");
  if (!find_place_in_round(assignment)) return invalid("the round leaves this node out");
  if (incarnation_of(assignment) != node.incarnation) {
    return conflict("the assignment is another incarnation's");
  }
  return {};
}

Json terminated(int exit_code) {
  return Json::array(
      {{{"name", plan::kNodeContainer}, {"state", {{"terminated", {{"exitCode", exit_code}}}}}}});
}

}  // namespace

std::vector<std::string> command_of(int64_t steps, bool by_rank_zero) {
  return {"program", std::to_string(steps), by_rank_zero ? kByRankZero : kByAll};
}

std::set<std::string> avoided_by(const Json& pod) {
  std::set<std::string> machines;
  const Json& affinity = member(member(member(pod, "spec"), "affinity"), "nodeAffinity");
  const Json& required = member(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
  for (const Json& term : member(required, "nodeSelectorTerms")) {
    for (const Json& field : member(term, "matchFields")) {
      for (const Json& name : field["values"]) machines.insert(name.get<std::string>());
    }
  }
  return machines;
}

Nodes::Nodes(Chance& chance, FakeStore& store) : chance_(chance), store_(store) {
  chance_.timers.after(kFailureTick, [this] { cause_failures(); });
}

const Node* Nodes::find(const std::string& job_uid, int64_t index, int64_t incarnation) const {
  for (const auto& [uid, node] : nodes_) {
    if (node->job_uid == job_uid && node->index == index && node->incarnation == incarnation) {
      return node.get();
    }
  }
  return nullptr;
}

bool Nodes::has_failed(const std::string& job_uid, int64_t index, int64_t incarnation,
                       int64_t round) const {
  const auto rounds = failed_.find({job_uid, index, incarnation});
  return rounds != failed_.end() && rounds->second.contains(round);
}

size_t Nodes::live() const {
  return static_cast<size_t>(std::count_if(
      nodes_.begin(), nodes_.end(), [](const auto& entry) { return entry.second->is_live; }));
}

void Nodes::on_pod(const FakeStore::Event& event) {
  const std::string uid = uid_of(*event.object);
  if (event.type == loop::WatchEventType::kAdded) {
    const std::optional<plan::PodView> view = plan::pod_view_from_json(*event.object);
    if (!view) return;
    const Json& labels = member(member(*event.object, "metadata"), "labels");
    nodes_[uid] =
        std::make_unique<Node>(Node{.key = loop::object_key(*event.object),
                                    .uid = uid,
                                    .job_uid = view->owner_uid,
                                    .job_name = string_or(labels, plan::kJobNameLabel, ""),
                                    .index = view->node_index,
                                    .incarnation = view->incarnation,
                                    .created_at = chance_.clock.now()});
    chance_.timers.after(chance_.between(milliseconds(200), seconds(3)),
                         [this, uid] { start(uid); });
    return;
  }
  const auto found = nodes_.find(uid);
  if (found == nodes_.end()) return;
  Node& node = *found->second;
  const bool was_there = node.is_live || node.is_stopping;
  const bool runs = event.type == loop::WatchEventType::kModified &&
                    !plan::pod_view_from_json(*event.object)->exit_code;
  const bool was_live = std::exchange(node.is_live, runs && is_live_pod(*event.object));
  const bool is_marked = runs && is_terminating(*event.object);
  if (was_live && is_marked) stop_with_round(node);
  node.is_stopping = node.is_stopping && is_marked;
  if (was_there && !node.is_live && !node.is_stopping) {
    free_ip(node);
    answer_waiters(node);
    schedule_advance(node.job_uid, kNoticed);
  }
  if (event.type == loop::WatchEventType::kDeleted) {
    waiters_.erase(uid);
    nodes_.erase(found);
  } else if (is_terminating(*event.object) && !is_terminating(*event.before)) {
    node.marked_at = chance_.clock.now();
    leave(uid);
  }
}

void Nodes::start(const std::string& uid) {
  const auto found = nodes_.find(uid);
  if (found == nodes_.end() || !found->second->is_live) return;
  Node& node = *found->second;
  const Json& pod = *store_.find(loop::kPods, node.key);
  node.machine = machine_for(pod);
  node.image = string_or(member(pod, "spec"), "image", "");
  if (delay_start(node)) return;
  const Json* secret = store_.find(loop::kSecrets, secret_key_of(pod));
  if (secret == nullptr) {
    chance_.timers.after(kMountRetry, [this, uid] { start(uid); });
    return;
  }
  node.token = string_or(member(*secret, "stringData"), plan::kTokenKey, "");
  ++starts_;
  node.started_at = node.heard_at = chance_.clock.now();
  node.ip = take_ip();
  by_ip_[node.ip] = &node;
  node.state.sequence = 1;
  node.state.boot_id = uid;
  node.state.job_uid = node.job_uid;
  node.state.node_index = node.index;
  node.state.incarnation = node.incarnation;
  node.state.phase = "Idle";
  const bool is_old = !node.image.empty() && node.image.back() % 2 != 0;
  node.state.protocol = is_old ? oldest_protocol : kProtocolNewest;
  store_.update(loop::kPods, node.key, [&](Json& pod) {
    pod["spec"]["nodeName"] = node.machine;
    pod["status"] = {{"phase", "Running"}, {"podIP", node.ip}};
  });
}

// Sometimes reuses the IP of a pod that is gone.
std::string Nodes::take_ip() {
  if (free_ips_.empty() || chance_.flip(0.5)) return "10.0.0." + std::to_string(++ips_);
  std::string ip = free_ips_.front();
  free_ips_.erase(free_ips_.begin());
  return ip;
}

void Nodes::free_ip(const Node& node) {
  const auto found = by_ip_.find(node.ip);
  if (found == by_ip_.end() || found->second != &node) return;
  free_ips_.push_back(node.ip);
  by_ip_.erase(found);
}

// Assigns machines in turn; a new one if the pod must avoid all of them.
std::string Nodes::machine_for(const Json& pod) const {
  const std::set<std::string> avoided = avoided_by(pod);
  for (int64_t i = 0; i < kMachines; ++i) {
    const std::string machine = "machine-" + std::to_string((starts_ + i) % kMachines);
    if (!avoided.contains(machine)) return machine;
  }
  return "machine-" + std::to_string(kMachines + starts_);
}

// Returns whether the pod cannot start now. It retries, except for some pods of jobs with a pending
// timeout.
bool Nodes::delay_start(Node& node) {
  if (std::exchange(node.has_tried_start, true)) return false;
  const bool has_no_room = chance_.happens(Fault::kUnschedulable, node.key);
  if (!has_no_room && !chance_.happens(Fault::kImagePull, node.key)) return false;
  count_failure(node.job_uid);
  store_.update(loop::kPods, node.key, [&](Json& pod) {
    pod["status"]["phase"] = "Pending";
    if (has_no_room) {
      pod["status"]["conditions"] = Json::array(
          {{{"type", "PodScheduled"}, {"status", "False"}, {"message", "no machine has room"}}});
      return;
    }
    pod["spec"]["nodeName"] = node.machine;
    pod["status"]["containerStatuses"] = Json::array(
        {{{"name", plan::kNodeContainer}, {"state", {{"waiting", {{"reason", "ErrImagePull"}}}}}}});
  });
  const Json* job = store_.find(loop::kTrainingJobs, "default/" + node.job_name);
  const Json& failure = job == nullptr ? Json() : member(member(*job, "spec"), "failure");
  const bool is_limited = int_or(failure, "pendingTimeoutSeconds", 0) > 0;
  if (is_limited && chance_.flip(0.5)) return true;
  chance_.timers.after(chance_.between(kStartDelayMin, kStartDelayMax),
                       [this, uid = node.uid] { start(uid); });
  return true;
}

// The kubelet removes a terminating pod. If its machine is lost, somebody removes the pod much
// later.
void Nodes::leave(const std::string& uid) {
  const bool is_lost = nodes_.at(uid)->is_silent;
  const Duration delay = is_lost ? chance_.between(kRemovalMin, kRemovalMax)
                                 : chance_.between(milliseconds(200), seconds(4));
  chance_.timers.after(delay, [this, uid, is_lost] {
    const auto found = nodes_.find(uid);
    if (found == nodes_.end()) return;
    if (found->second->is_silent && !is_lost) return leave(uid);
    const Node& node = *found->second;
    const bool saves = node.is_stopping && worker_of(*found->second).running;
    if (saves && chance_.clock.now() < node.marked_at + kGrace) return leave(uid);
    const std::string key = found->second->key;
    store_.remove(loop::kPods, key);
  });
}

// The pod is being deleted. Ranks that train stop at the end of a step; others die of SIGTERM.
void Nodes::stop_with_round(Node& node) {
  const bool has_folder = !node.assignment.checkpoint.path.empty();
  node.is_stopping = node.trains() && has_folder && !node.is_silent;
  if (!node.is_stopping) return;
  node.state.phase = "Stopping";
  changed(node);
  schedule_advance(node.job_uid, kNoticed);
}

void Nodes::end(Node& node, const char* reason, int exit_code) {
  node.state.phase = "Exiting";
  store_.update(loop::kPods, node.key, [&](Json& pod) {
    pod["status"]["phase"] = exit_code == 0 ? "Succeeded" : "Failed";
    if (exit_code != 0) pod["status"]["reason"] = reason;
    pod["status"]["containerStatuses"] = terminated(exit_code);
  });
}

// Another container lives on and keeps the pod running.
void Nodes::end_beside_sidecar(Node& node) {
  store_.update(loop::kPods, node.key,
                [](Json& pod) { pod["status"]["containerStatuses"] = terminated(1); });
}

Node* Nodes::at(const loop::AgentAddress& agent) {
  const auto found = by_ip_.find(agent.ip);
  if (found == by_ip_.end()) return nullptr;
  const std::string& token = found->second->token;
  if (std::ranges::find(agent.tokens, token) == agent.tokens.end()) return nullptr;
  return found->second->answers() ? found->second : nullptr;
}

AgentState Nodes::report(const Node& node) const {
  AgentState state = node.state;
  if (state.phase == "Failed") {
    state.failed_seconds_ago = to_seconds(chance_.clock.now() - node.failed_at);
  }
  return state;
}

void Nodes::heard(const loop::AgentAddress& agent, const AgentState& answer) {
  Node* node = at(agent);
  if (node == nullptr) return;
  const bool is_its = answer.job_uid == node->state.job_uid &&
                      answer.node_index == node->state.node_index &&
                      answer.incarnation == node->state.incarnation;
  if (!is_its) return;
  const TimePoint now = chance_.clock.now();
  if (now - node->heard_at > Node::kUnheard) node->heard_again_at = now;
  node->heard_at = now;
}

std::optional<AgentState> Nodes::old_report(const loop::AgentAddress& agent) {
  const Node* node = at(agent);
  return node == nullptr ? std::nullopt : node->old_report;
}

void Nodes::answer_waiters(const Node& node) {
  for (const Waiter& waiter : std::exchange(waiters_[node.uid], {})) {
    const Answer answer = std::exchange(*waiter, nullptr);
    if (!answer) continue;
    if (node.answers()) {
      answer(report(node));
    } else {
      answer(unavailable("the connection broke"));
    }
  }
}

void Nodes::changed(Node& node) {
  ++node.state.sequence;
  answer_waiters(node);
}

void Nodes::poll(const loop::AgentAddress& agent, int64_t since, TimePoint until, Answer answer) {
  const Node* node = at(agent);
  if (node == nullptr) return answer(unavailable("no agent answers"));
  if (node->state.sequence > since) return answer(report(*node));
  auto waiter = std::make_shared<Answer>(std::move(answer));
  waiters_[node->uid].push_back(waiter);
  chance_.timers.at(until, [this, agent, waiter] {
    const Answer late = std::exchange(*waiter, nullptr);
    if (!late) return;
    const Node* same = at(agent);
    late(same != nullptr ? Result<AgentState>(report(*same)) : timed_out("no answer"));
  });
}

Result<AgentState> Nodes::put(const loop::AgentAddress& agent, const Assignment& assignment) {
  Node* node = at(agent);
  if (node == nullptr) return unavailable("no agent answers");
  const int64_t round = assignment.world.round;
  if (on_assignment) on_assignment(assignment);
  TRY(check_world(*node, assignment));
  if (round < node->state.round ||
      (round == node->state.round && assignment.hash != node->state.hash)) {
    return conflict("an older round or another hash");
  }
  if (assignment.action == "Exit") {
    AgentState last = node->state;
    last.phase = "Exiting";
    end(*node, "Error", static_cast<int>(assignment.exit_code));
    return last;
  }
  if (round > node->state.round) {
    carry_out(*node, assignment);
  } else {
    take_view(*node, assignment);
  }
  return report(*node);
}

void Nodes::carry_out(Node& node, const Assignment& assignment) {
  if (node.state.round > 0) node.old_report = report(node);
  node.assignment = assignment;
  node.assigned_at = chance_.clock.now();
  node.hung_at.reset();
  node.slow = {.factor = node.slow.factor, .until = node.slow.until};
  node.state.storage.reset();
  node.state.round = assignment.world.round;
  int64_t& newest = newest_begun_[node.job_uid];
  newest = std::max(newest, node.state.round);
  node.state.hash = assignment.hash;
  node.state.phase = "Running";
  WorkerState worker;
  worker.rank = rank_in_round(assignment, 0);
  worker.running = true;
  worker.phase = WorkerPhase::kForming;
  node.state.workers = {worker};
  if (!begin_serving(node)) changed(node);
  schedule_advance(node.job_uid, kNoticed);
}

void Nodes::fail(Node& node, int exit_code, const char* reason) {
  WorkerState& worker = worker_of(node);
  worker.running = false;
  worker.exit_code = exit_code;
  worker.signal = exit_code > 128 ? exit_code - 128 : 0;
  worker.reason = reason;
  worker.log_tail = "ended by the simulation";
  failed_[{node.job_uid, node.index, node.incarnation}].insert(node.state.round);
  if (!node.is_stopping) node.state.phase = "Failed";
  node.failed_at = chance_.clock.now();
  changed(node);
  schedule_advance(node.job_uid, kNoticed);
}

void Nodes::schedule_advance(const std::string& job_uid, Duration delay) {
  const TimePoint when = chance_.clock.now() + delay;
  std::optional<loop::Timers::Id>& timer = advance_timers_[job_uid];
  if (timer && timer->first <= when) return;
  if (timer) chance_.timers.cancel(*timer);
  timer = chance_.timers.at(when, [this, job_uid] {
    advance_timers_[job_uid].reset();
    advance_job(job_uid);
  });
}

void Nodes::advance_job(const std::string& job_uid) {
  std::map<std::string, Round> rounds;  // by hash
  for (auto& [uid, node] : nodes_) {
    const std::string& phase = node->state.phase;
    const bool takes_part =
        phase == "Running" || phase == "Failed" || phase == "Completed" || phase == "Stopping";
    const bool is_there = node->answers() || node->is_waited_for();
    if (node->job_uid == job_uid && is_there && takes_part && !is_superseded(*node)) {
      rounds[node->state.hash].push_back(node.get());
    }
  }
  bool goes_on = false;
  for (const auto& [hash, round] : rounds) goes_on = proceed(round) || goes_on;
  if (goes_on) schedule_advance(job_uid, seconds_of_step(job_uid));
}

// Returns whether a worker still runs.
bool Nodes::proceed(const Round& round) {
  const auto runs = [](Node* node) { return worker_of(*node).running && !node->hung_at; };
  const auto saves = [](Node* node) {
    return worker_of(*node).running && worker_of(*node).phase == WorkerPhase::kSaving;
  };
  const auto stops = [](const Node* node) { return node->is_stopping; };
  const auto is_hung = [](const Node* node) { return node->hung_at.has_value(); };
  if (std::ranges::none_of(round, runs)) return false;
  const bool is_all_there = is_whole(round);
  if (is_all_there) missed_since_.erase(round.front()->state.hash);
  if (!is_all_there && waits_for_view(round)) return true;
  if (!is_all_there) {
    break_up(round);
  } else if (std::ranges::any_of(round, is_hung)) {
    wait_for_hung(round);
  } else if (std::ranges::none_of(round, saves)) {
    train(round);
    if (std::ranges::any_of(round, stops)) stop(round);
  }
  return std::ranges::any_of(round, runs);
}

bool Nodes::may_leave(const Node& node) const {
  const auto ranks = leaving_.find(node.state.hash);
  return ranks != leaving_.end() && ranks->second.contains(node.state.workers.front().rank);
}

// Returns whether no rank is missing, other than those that leave because all have saved.
bool Nodes::is_whole(const Round& round) const {
  const auto ranks = leaving_.find(round.front()->state.hash);
  std::set<int64_t> known = ranks == leaving_.end() ? std::set<int64_t>{} : ranks->second;
  const std::set<int64_t> spared = spared_ranks(round);
  known.insert(spared.begin(), spared.end());
  for (const Node* node : round) {
    const bool is_spared = spared.contains(node->state.workers.front().rank);
    if (node->state.phase == "Failed" && !is_spared && !may_leave(*node)) return false;
    const WorkerState& worker = node->state.workers.front();
    if (worker.running || worker.exit_code == 0) known.insert(worker.rank);
  }
  for (int64_t rank = 0; rank < ranks_of(round); ++rank) {
    if (!known.contains(rank)) return false;
  }
  return true;
}

// All ranks save this step. They are not done at the same time, but none leaves before all are:
// the worker's last act is a gathering of all ranks (Saver::finish()).
void Nodes::stop(const Round& round) {
  for (Node* node : round) {
    WorkerState& worker = worker_of(*node);
    if (!worker.running) continue;
    worker.phase = WorkerPhase::kSaving;
    changed(*node);
    chance_.timers.after(
        chance_.between(milliseconds(0), kSavingMax),
        [this, uid = node->uid, hash = node->state.hash] { finish_saving(uid, hash); });
  }
}

void Nodes::finish_saving(const std::string& uid, const std::string& hash) {
  const auto found = nodes_.find(uid);
  if (found == nodes_.end() || found->second->state.hash != hash) return;
  const Node& node = *found->second;
  if (!node.state.workers.front().running || !node.answers()) return;
  std::set<int64_t>& written = written_[hash];
  written.insert(node.state.workers.front().rank);
  std::set<int64_t> done = written;
  Round round;
  for (const auto& [other, peer] : nodes_) {
    const bool is_in_it = peer->state.hash == hash && !peer->state.workers.empty();
    if (is_in_it && !is_superseded(*peer)) round.push_back(peer.get());
  }
  std::set<int64_t> without = spared_ranks(round);  // servers without which the round goes on
  for (const Node* peer : round) {
    const WorkerState& worker = peer->state.workers.front();
    if (worker.running) without.erase(worker.rank);
    const bool is_gone = has_copies(peer->assignment) && !worker.running && worker.exit_code != 0;
    if (is_gone) without.insert(worker.rank);
    if (!worker.running && worker.exit_code == 0) done.insert(worker.rank);
  }
  done.insert(without.begin(), without.end());
  const auto gone = static_cast<size_t>(
      std::ranges::count_if(without, [&](int64_t rank) { return !written.contains(rank); }));
  const auto all = static_cast<size_t>(ranks_of(round));
  if (done.size() < all || leaving_.contains(hash)) return;
  if (written.size() + gone == all) {
    saved_.insert({node.job_uid, node.state.round});
    save(node, node.state.workers.front().step);
  }
  leaving_[hash] = written;
  for (const auto& [other, peer] : nodes_) {
    if (peer->state.hash != hash || peer->job_uid != node.job_uid) continue;
    chance_.timers.after(chance_.between(milliseconds(0), kSavingMax),
                         [this, other = other, hash] { leave_saved(other, hash); });
  }
}

void Nodes::leave_saved(const std::string& uid, const std::string& hash) {
  const auto found = nodes_.find(uid);
  if (found == nodes_.end() || found->second->state.hash != hash) return;
  Node& node = *found->second;
  WorkerState& worker = worker_of(node);
  if (!worker.running || !node.answers()) return;
  worker.running = false;
  worker.exit_code = kExitStopped;
  if (worker.rank == 0) node.state.last_checkpoint = {worker.step, "/checkpoints"};
  worker.reason = node.is_stopping ? "Stopped" : "Error";
  if (!node.is_stopping) node.state.phase = "Failed";
  node.failed_at = chance_.clock.now();
  changed(node);
  if (node.is_stopping && chance_.flip(0.5)) end(node, "Error", kExitStopped);
}

void Nodes::train(const Round& round) {
  Node& first = *round.front();
  const Work work = work_of(first.assignment);
  int64_t step = newest_checkpoint(first.job_uid);
  for (Node* node : round) step = std::max(step, worker_of(*node).step);
  const bool begins = trainings_.try_emplace(first.state.hash).second;
  if (begins) resume(first, step);
  ++step;
  if (ends_by_loss(round, step)) return;
  if (step % kCheckpointEvery == 0) save(first, std::min(step, work.steps - 1));
  // A round that is being stopped finishes its step, also if a newer one was begun without it.
  const bool stops = std::ranges::any_of(round, &Node::is_stopping);
  if (on_trained && !stops) on_trained(first.job_uid, first.assignment);
  if (first.assignment.train) note_speeds(round);
  for (Node* node : round) {
    WorkerState& worker = worker_of(*node);
    if (!worker.running) continue;
    const bool ends = work.ends(worker.rank, step);
    worker.phase = ends ? WorkerPhase::kDone : WorkerPhase::kTraining;
    worker.step = step;
    ProgressStatus& progress = node->state.progress.emplace();
    progress.step = std::min(step, work.steps);
    progress.steps = work.steps;
    report_storage(*node);
    if (ends) {
      worker.running = false;
      worker.reason = "Completed";
      node->state.phase = "Completed";
      if (on_ended) on_ended(*node);
    }
    changed(*node);
  }
}

void Nodes::wait_for_hung(const Round& round) {
  const auto hung = std::find_if(round.begin(), round.end(),
                                 [](const Node* node) { return node->hung_at.has_value(); });
  if (chance_.clock.now() - *(*hung)->hung_at < seconds(kHangSeconds)) return;
  for (Node* node : round) {
    if (node->hung_at || !worker_of(*node).running) continue;
    worker_of(*node).suspect_rank = worker_of(**hung).rank;
    fail(*node, kExitPeerHung, "Error");
  }
}

// A worker is missing. Those that trained with it notice immediately; those still forming, when
// forming takes too long.
void Nodes::break_up(const Round& round) {
  Round waiting;
  for (Node* node : round) {
    const bool had_formed = worker_of(*node).phase >= WorkerPhase::kTraining;
    const bool is_late = chance_.clock.now() - node->assigned_at > kFormingMax;
    const bool waits = worker_of(*node).running && !node->hung_at;
    if (waits && (had_formed || is_late)) waiting.push_back(node);
  }
  const bool nobody_failed = std::none_of(round.begin(), round.end(), [this](const Node* node) {
    return node->state.phase == "Failed" && !may_leave(*node);
  });
  // A formation that took too long is itself a failure.
  if (nobody_failed && !waiting.empty() && on_failure) on_failure(round.front()->job_uid);
  for (Node* node : waiting) {
    const int code = node->assignment.train ? kExitPeerLost : kExitOfCommand;
    if (chance_.random.below(3) > 0) fail(*node, code, "Error");
  }
}

}  // namespace lockstep::sim
