#include "cli/local/node/local_node.h"

#include <signal.h>

#include <algorithm>

#include "cli/local/node/fields.h"
#include "cli/local/node/process_tree.h"
#include "cli/local/node/program.h"
#include "common/api/agent_messages.h"
#include "common/api/training_job.h"
#include "common/base/log.h"

namespace lockstep::local {
namespace {

constexpr Duration kSecretRetry = std::chrono::milliseconds(500);
constexpr Duration kLogCheck = std::chrono::seconds(5);
constexpr size_t kEventsPerRead = 256;
// Source: Kubernetes, "Determine the Reason for Pod Failure".
constexpr size_t kMessageBytesMax = 4096;
constexpr size_t kLogMessageBytesMax = 2048;

constexpr char kWatchPods[] = "/api/v1/pods?watch=true";
constexpr char kWatchNodes[] = "/api/v1/nodes?watch=true";

Watch open_watch(Api& api, const char* target) {
  return std::get<Watch>(api.open_watch({"GET", target, "", ""}));
}

}  // namespace

struct LocalNode::Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  bool api_changed = true;
  bool stopping = false;
  bool kill_all = false;
  bool empty = true;  // as the node's thread last saw it
  std::deque<Exit> exits;

  template <class Change>
  void tell(Change change) {
    {
      std::lock_guard lock(mutex);
      change(*this);
    }
    changed.notify_all();
  }
};

LocalNode::LocalNode(Api& api, ProcessHost& host, const Clock& clock,
                     const LocalNodeOptions& options)
    : api_(api),
      caller_(api),
      host_(host),
      clock_(clock),
      options_(options),
      addresses_(options.seed),
      inbox_(std::make_shared<Inbox>()),
      watch_(open_watch(api, kWatchPods)),
      node_watch_(open_watch(api, kWatchNodes)),
      scheduler_([this](const std::string& namespace_,
                        const Json& owner) { return owner_facts(namespace_, owner); },
                 options.scheduler) {
  for (const MachineOptions& machine : options_.machines)
    machines_.try_emplace(machine.name, caller_, clock_, machine, options_.heartbeat);
}

Result<std::unique_ptr<LocalNode>> LocalNode::start(Api& api, ProcessHost& host, const Clock& clock,
                                                    const LocalNodeOptions& options) {
  TRY(make_private_folder(options.folder));
  TRY(make_private_folder(options.log_folder));
  std::unique_ptr<LocalNode> node(new LocalNode(api, host, clock, options));
  // The Api may outlive the node.
  api.on_change([weak = std::weak_ptr<Inbox>(node->inbox_)] {
    if (auto inbox = weak.lock()) inbox->tell([](Inbox& box) { box.api_changed = true; });
  });
  for (auto& [name, machine] : node->machines_) machine.boot();
  node->thread_ = std::thread([raw = node.get()] { raw->loop(); });
  return node;
}

LocalNode::~LocalNode() {
  kill_all();
  inbox_->tell([](Inbox& box) { box.stopping = true; });
  if (thread_.joinable()) thread_.join();
}

void LocalNode::kill_all() {
  inbox_->tell([](Inbox& box) { box.kill_all = true; });
}

bool LocalNode::is_empty() {
  std::lock_guard lock(inbox_->mutex);
  return inbox_->empty && !inbox_->api_changed && inbox_->exits.empty();
}

void LocalNode::loop() {
  while (true) {
    std::deque<Exit> exits;
    bool kill_now = false;
    {
      std::unique_lock lock(inbox_->mutex);
      inbox_->empty = pods_.empty();
      inbox_->changed.wait_until(lock, next_deadline(), [this] {
        return inbox_->api_changed || inbox_->stopping || !inbox_->exits.empty() ||
               (inbox_->kill_all && !pods_.empty());
      });
      inbox_->api_changed = false;
      exits.swap(inbox_->exits);
      kill_now = inbox_->kill_all;
      if (inbox_->stopping && pods_.empty()) return;
    }
    for (const Exit& exit : exits) {
      auto found = pods_.find(exit.uid);
      if (found != pods_.end()) ended(found->second, exit.status);
    }
    if (kill_now) {
      for (auto& [uid, pod] : pods_) release(pod);
      pods_.clear();
      next_log_check_ = clock_.now() + kLogCheck;
    } else {
      read_node_changes();
      read_changes();
      step_machines();
      place_pods();
      check_deadlines();
    }
  }
}

void LocalNode::read_changes() {
  while (true) {
    std::vector<Json> events = api_.next_events(watch_, kEventsPerRead);
    for (const Json& event : events) {
      const Json& pod = event["object"];
      if (event["type"] == "DELETED") {
        scheduler_.pod_gone(uid_of(pod));
        gone(pod);
      } else if (event["type"] != "ERROR") {
        scheduler_.pod_changed(pod, clock_.now());
        apply(pod);
      }
    }
    if (watch_.ended)  // too far behind: begin anew with what is there
      watch_ = open_watch(api_, kWatchPods);
    else if (events.empty())
      return;
  }
}

void LocalNode::apply(const Json& object) {
  if (!machines_.contains(node_of(object))) return;
  bool deleting = is_deleting(object);
  std::string uid = uid_of(object);
  auto found = pods_.find(uid);
  if (found == pods_.end()) {
    if (is_terminal(object) && !deleting) return;
    Pod& pod = pods_[uid];
    pod.object = object;
    if (!deleting) return start_pod(pod);
    pod.state = State::kEnded;
    return terminate(pod);
  }
  found->second.object = object;
  if (deleting) terminate(found->second);
}

void LocalNode::read_node_changes() {
  while (true) {
    std::vector<Json> events = api_.next_events(node_watch_, kEventsPerRead);
    for (const Json& event : events) {
      const Json& node = event["object"];
      if (event["type"] == "ERROR") continue;
      auto machine = machines_.find(string_or(metadata_of(node), "name", ""));
      if (event["type"] == "DELETED") {
        scheduler_.node_gone(string_or(metadata_of(node), "name", ""));
        if (machine != machines_.end()) machine->second.node_gone();
      } else {
        scheduler_.node_changed(node);
        if (machine != machines_.end()) machine->second.node_changed(node);
      }
    }
    if (node_watch_.ended)
      node_watch_ = open_watch(api_, kWatchNodes);
    else if (events.empty())
      return;
  }
}

void LocalNode::step_machines() {
  for (auto& [name, machine] : machines_) machine.step(clock_.now());
}

void LocalNode::place_pods() {
  for (const Placement& placement : scheduler_.place(clock_.now())) {
    std::string target = "/api/v1/namespaces/" + placement.namespace_ + "/pods/" + placement.name;
    if (!placement.node.empty()) {
      ApiResponse bound = caller_.create(target + "/binding",
                                         {{"target", {{"kind", "Node"}, {"name", placement.node}}},
                                          {"metadata", {{"uid", placement.uid}}}});
      if (!bound.ok()) scheduler_.not_bound(placement.uid, clock_.now());
      continue;
    }
    Json condition = {{"type", "PodScheduled"},
                      {"status", "False"},
                      {"reason", "Unschedulable"},
                      {"message", placement.message},
                      {"lastTransitionTime", rfc3339(clock_.wall_now())}};
    caller_.patch(target + "/status", {{"metadata", {{"uid", placement.uid}}},
                                       {"status", {{"conditions", Json::array({condition})}}}});
  }
}

// A job says how many pods it wants; of others, as many as there are.
OwnerFacts LocalNode::owner_facts(const std::string& namespace_, const Json& reference) {
  if (string_or(reference, "kind", "") != kKind) return {};
  ApiResponse job = caller_.get("/apis/" + string_or(reference, "apiVersion", "") + "/namespaces/" +
                                namespace_ + "/trainingjobs/" + string_or(reference, "name", ""));
  if (!job.ok()) return {};
  return {string_or(metadata_of(job.body), "creationTimestamp", ""),
          int_or(object_of(job.body, "spec"), "nodes", 0)};
}

void LocalNode::start_pod(Pod& pod) {
  if (Status addressed = take_address(pod); !addressed.ok())
    return refuse(pod, kNoAddressReason, addressed.error().message);
  Status prepared = prepare(pod);
  if (!prepared.ok() && prepared.error().code == Code::kNotFound) {
    pod.retry_at = clock_.now() + kSecretRetry;
    return report(
        pod, waiting_status(pod.facts, "CreateContainerConfigError", prepared.error().message));
  }
  if (!prepared.ok()) {
    bool is_asked_too_much = prepared.error().code == Code::kInvalid;
    return refuse(pod, is_asked_too_much ? "NotSupported" : "NodeFailure",
                  prepared.error().message);
  }
  Status launched = launch(pod);
  if (launched.ok()) return;
  pod.state = State::kEnded;
  EndFacts end{.exit_code = 128,
               .reason = "StartError",
               .message = launched.error().message,
               .finished = clock_.wall_now()};
  report(pod, ended_status(pod.facts, end));
  give_address_back(pod);
}

Status LocalNode::take_address(Pod& pod) {
  if (!pod.facts.address.empty()) return {};
  std::vector<uint16_t> ports = container_ports(pod.object);
  ports.push_back(static_cast<uint16_t>(kAgentPort));
  TRY_ASSIGN(pod.facts.address, addresses_.take(ports));
  return {};
}

// Once alone: by the second time it may be another pod's.
void LocalNode::give_address_back(Pod& pod) {
  if (!pod.facts.address.empty()) addresses_.give_back(pod.facts.address);
  pod.facts.address.clear();
}

Status LocalNode::prepare(Pod& pod) {
  pod.facts.started = clock_.wall_now();
  TRY_ASSIGN(pod.plan, plan_pod(pod.object, {node_of(pod.object), pod.facts.address}));
  pod.facts.container = pod.plan.container;
  pod.facts.host_address = machines_.at(node_of(pod.object)).options().address;
  pod.facts.image = string_or(pod.object["spec"]["containers"][0], "image", "");
  pod.folder = PodFolder(options_.folder + "/" + pod.plan.name + "-" + pod.plan.uid.substr(0, 8));
  TRY(pod.folder.create());
  for (const VolumePlan& volume : pod.plan.volumes) {
    if (volume.secret.empty()) {
      TRY(pod.folder.add_folder(volume.mount_path));
      continue;
    }
    ApiResponse secret =
        caller_.get("/api/v1/namespaces/" + pod.plan.namespace_ + "/secrets/" + volume.secret);
    if (!secret.ok() && !volume.optional)
      return not_found("secret \"" + volume.secret + "\" not found");
    TRY(pod.folder.add_secret(volume.mount_path, object_of(secret.body, "data")));
  }
  std::string message = pod.plan.termination_message_path;
  return pod.folder.add_folder(message.substr(0, message.rfind('/')));
}

Status LocalNode::launch(Pod& pod) {
  SpawnSpec spec;
  spec.program = find_program(pod.plan.command[0], options_.program_folder);
  spec.arguments = pod.plan.command;
  std::vector<std::pair<std::string, std::string>> environment = pod.plan.environment;
  environment.emplace_back("LOCKSTEP_POD_ROOT", pod.folder.root());
  environment.emplace_back("HOSTNAME", pod.plan.name);
  spec.environment = merged_environment(environment);
  spec.working_folder =
      pod.plan.working_folder.empty() ? options_.working_folder : pod.plan.working_folder;
  if (spec.working_folder.empty()) spec.working_folder = pod.folder.root();
  spec.output_file = log_file(pod);
  spec.cpus = machines_.at(node_of(pod.object)).options().cpus;
  std::string uid = pod.plan.uid;
  Result<pid_t> pid = host_.spawn(spec, [inbox = inbox_, uid](ExitStatus status) {
    inbox->tell([&](Inbox& box) { box.exits.push_back({uid, status}); });
  });
  if (!pid.ok()) return pid.error();
  pod.pid = *pid;
  pod.state = State::kRunning;
  pod.facts.started = clock_.wall_now();
  pod.facts.container_id = "process://" + std::to_string(*pid);
  report(pod, running_status(pod.facts));
  return {};
}

void LocalNode::terminate(Pod& pod) {
  if (pod.state != State::kRunning) {
    release(pod);
    caller_.remove(pod_target(pod.object),
                   {{"gracePeriodSeconds", 0}, {"preconditions", {{"uid", uid_of(pod.object)}}}});
    pods_.erase(uid_of(pod.object));
    return;
  }
  int64_t grace = int_or(metadata_of(pod.object), "deletionGracePeriodSeconds", 0);
  TimePoint kill_at = clock_.now() + std::chrono::seconds(std::clamp<int64_t>(grace, 0, 86400));
  if (!pod.terminating) kill(pod.pid, SIGTERM);
  pod.kill_at = pod.terminating ? std::min(pod.kill_at, kill_at) : kill_at;
  pod.terminating = true;
}

// Removed from the Api without waiting for us: nothing of it may run on.
void LocalNode::gone(const Json& object) {
  auto found = pods_.find(uid_of(object));
  if (found == pods_.end()) return;
  release(found->second);
  pods_.erase(found);
}

void LocalNode::ended(Pod& pod, const ExitStatus& status) {
  pod.state = State::kEnded;
  // A container ends with all that it started.
  kill_processes_with(marker(pod));
  EndFacts end{.exit_code = status.code,
               .signal = status.signal,
               .reason = status.code == 0 ? "Completed" : "Error",
               .message = termination_message(pod, status),
               .finished = clock_.wall_now()};
  report(pod, ended_status(pod.facts, end));
  give_address_back(pod);
  if (pod.terminating) terminate(pod);
}

void LocalNode::refuse(Pod& pod, std::string_view reason, const std::string& message) {
  pod.state = State::kEnded;
  report(pod, refused_status(reason, message));
  give_address_back(pod);
}

void LocalNode::release(Pod& pod) {
  if (pod.state == State::kRunning) {
    kill(-pod.pid, SIGKILL);
    if (!kill_processes_with(marker(pod)))
      log_error("processes of a pod don't end", {{"pod", pod.plan.name}});
  }
  give_address_back(pod);
  if (!pod.folder.root().empty()) pod.folder.remove();
}

void LocalNode::check_deadlines() {
  TimePoint now = clock_.now();
  bool check_logs = now >= next_log_check_;
  if (check_logs) next_log_check_ = now + kLogCheck;
  for (auto& [uid, pod] : pods_) {
    if (pod.state == State::kWaiting && now >= pod.retry_at) start_pod(pod);
    if (pod.state != State::kRunning) continue;
    if (pod.terminating && now >= pod.kill_at) {
      kill(-pod.pid, SIGKILL);
      kill_processes_with(marker(pod));  // its end is reported when it is reaped
    }
    if (check_logs) bound_log(log_file(pod), options_.log_bytes_max, options_.log_bytes_max / 4);
  }
}

TimePoint LocalNode::next_deadline() const {
  TimePoint next = std::min(next_log_check_, scheduler_.next_deadline());
  for (const auto& [name, machine] : machines_) next = std::min(next, machine.next_deadline());
  for (const auto& [uid, pod] : pods_) {
    if (pod.state == State::kWaiting) next = std::min(next, pod.retry_at);
    if (pod.state == State::kRunning && pod.terminating) next = std::min(next, pod.kill_at);
  }
  return next;
}

std::string LocalNode::marker(const Pod& pod) const {
  return "LOCKSTEP_POD_ROOT=" + pod.folder.root();
}

std::string LocalNode::log_file(const Pod& pod) const {
  return options_.log_folder + "/" + pod.plan.name + ".log";
}

std::string LocalNode::termination_message(const Pod& pod, const ExitStatus& status) const {
  std::string file = pod.folder.path_of(pod.plan.termination_message_path);
  std::string message = end_of_file(file, kMessageBytesMax);
  if (message.empty() && status.code != 0 && pod.plan.message_falls_back_to_log)
    message = end_of_file(log_file(pod), kLogMessageBytesMax);
  return message;
}

void LocalNode::report(const Pod& pod, Json status) {
  caller_.patch(pod_target(pod.object, "/status"), {{"status", std::move(status)}});
}

}  // namespace lockstep::local
