#include "cli/local/node/local_node.h"

#include <signal.h>

#include <algorithm>

#include "cli/local/node/process_tree.h"
#include "cli/local/node/program.h"
#include "common/api/agent_messages.h"
#include "common/base/log.h"

namespace lockstep::local {
namespace {

constexpr Duration kSecretRetry = std::chrono::milliseconds(500);
constexpr Duration kLogCheck = std::chrono::seconds(5);
constexpr size_t kEventsPerRead = 256;
// Source: Kubernetes, "Determine the Reason for Pod Failure".
constexpr size_t kMessageBytesMax = 4096;
constexpr size_t kLogMessageBytesMax = 2048;

const Json& member_or_empty(const Json& object, std::string_view key) {
  static const Json kNone = Json::object();
  const Json* member = find_member(object, key);
  return member == nullptr ? kNone : *member;
}

bool is_terminal(const Json& pod) {
  std::string phase = string_or(member_or_empty(pod, "status"), "phase", "");
  return phase == "Succeeded" || phase == "Failed";
}

std::string pod_target(const Json& pod, std::string_view suffix = "") {
  const Json& metadata = metadata_of(pod);
  return "/api/v1/namespaces/" + string_or(metadata, "namespace", "") + "/pods/" +
         string_or(metadata, "name", "") + std::string(suffix);
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
      host_(host),
      clock_(clock),
      options_(options),
      addresses_(options.seed),
      inbox_(std::make_shared<Inbox>()) {}

Result<std::unique_ptr<LocalNode>> LocalNode::start(Api& api, ProcessHost& host, const Clock& clock,
                                                    const LocalNodeOptions& options) {
  TRY(make_private_folder(options.folder));
  TRY(make_private_folder(options.log_folder));
  std::unique_ptr<LocalNode> node(new LocalNode(api, host, clock, options));
  auto opened = api.open_watch({"GET", "/api/v1/pods?watch=true", "", ""});
  node->watch_ = std::get<Watch>(std::move(opened));
  // The Api may outlive the node.
  api.on_change([weak = std::weak_ptr<Inbox>(node->inbox_)] {
    if (auto inbox = weak.lock()) inbox->tell([](Inbox& box) { box.api_changed = true; });
  });
  node->register_node();
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

void LocalNode::register_node() {
  std::string now = rfc3339(clock_.wall_now());
  call("POST", "/api/v1/nodes", {{"metadata", {{"name", options_.name}}}});
  Json ready = {{"type", "Ready"},
                {"status", "True"},
                {"reason", "KubeletReady"},
                {"lastHeartbeatTime", now},
                {"lastTransitionTime", now}};
  Json cpus = {{"cpu", std::to_string(std::max(1u, std::thread::hardware_concurrency()))},
               {"pods", "110"}};
  call("PATCH", "/api/v1/nodes/" + options_.name + "/status",
       {{"status",
         {{"conditions", Json::array({ready})}, {"capacity", cpus}, {"allocatable", cpus}}}});
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
      read_changes();
      check_deadlines();
    }
  }
}

void LocalNode::read_changes() {
  while (true) {
    std::vector<Json> events = api_.next_events(watch_, kEventsPerRead);
    for (const Json& event : events) {
      const Json& pod = event["object"];
      if (event["type"] == "DELETED")
        gone(pod);
      else if (event["type"] != "ERROR")
        apply(pod);
    }
    if (watch_.ended)  // too far behind: begin anew with what is there
      watch_ = std::get<Watch>(api_.open_watch({"GET", "/api/v1/pods?watch=true", "", ""}));
    else if (events.empty())
      return;
  }
}

void LocalNode::apply(const Json& object) {
  std::string node = string_or(member_or_empty(object, "spec"), "nodeName", "");
  bool deleting = metadata_of(object).contains("deletionTimestamp");
  if (node.empty() && !deleting) return bind(object);
  if (node != options_.name) return;
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

// The scheduler's part: there is only one node.
void LocalNode::bind(const Json& pod) {
  call("POST", pod_target(pod, "/binding"),
       {{"target", {{"kind", "Node"}, {"name", options_.name}}}});
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
  TRY_ASSIGN(pod.plan, plan_pod(pod.object, {options_.name, pod.facts.address}));
  pod.facts.container = pod.plan.container;
  pod.facts.image = string_or(pod.object["spec"]["containers"][0], "image", "");
  pod.folder = PodFolder(options_.folder + "/" + pod.plan.name + "-" + pod.plan.uid.substr(0, 8));
  TRY(pod.folder.create());
  for (const VolumePlan& volume : pod.plan.volumes) {
    if (volume.secret.empty()) {
      TRY(pod.folder.add_folder(volume.mount_path));
      continue;
    }
    ApiResponse secret = call(
        "GET", "/api/v1/namespaces/" + pod.plan.namespace_ + "/secrets/" + volume.secret, Json());
    if (!secret.ok() && !volume.optional)
      return not_found("secret \"" + volume.secret + "\" not found");
    TRY(pod.folder.add_secret(volume.mount_path, member_or_empty(secret.body, "data")));
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
      pod.plan.working_folder.empty() ? pod.folder.root() : pod.plan.working_folder;
  spec.output_file = log_file(pod);
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
    call("DELETE", pod_target(pod.object),
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
  TimePoint next = next_log_check_;
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
  call("PATCH", pod_target(pod.object, "/status"), {{"status", std::move(status)}});
}

ApiResponse LocalNode::call(std::string_view method, const std::string& target, const Json& body) {
  std::string type = method == "PATCH" ? "application/merge-patch+json" : "application/json";
  ApiResponse response = api_.handle(
      {std::string(method), target, type, body.is_null() ? std::string() : dump_json(body)});
  // 404 and 409: it was deleted or written meanwhile; the next event says so.
  if (!response.ok() && response.code != 404 && response.code != 409)
    log_warning("the local node was refused", {{"request", std::string(method) + " " + target},
                                               {"code", response.code},
                                               {"error", string_or(response.body, "message", "")}});
  return response;
}

}  // namespace lockstep::local
