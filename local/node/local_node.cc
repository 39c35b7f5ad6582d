#include "local/node/local_node.h"

#include <algorithm>

#include "local/node/fields.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

constexpr Duration kLogCheck = std::chrono::seconds(5);
constexpr size_t kEventsPerRead = 256;
constexpr char kPods[] = "/api/v1/pods";
constexpr char kNodes[] = "/api/v1/nodes";
constexpr char kLeases[] = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

}  // namespace

struct LocalNode::Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  bool api_changed = true;
  bool stopping = false;
  bool kill_all = false;
  bool empty = true;  // as the node's thread last saw it
  std::deque<NodeMessage> messages;

  template <class Change>
  void update(Change change) {
    {
      std::lock_guard lock(mutex);
      change(*this);
    }
    changed.notify_all();
  }
};

LocalNode::LocalNode(NodeApi& api, ProcessHost& host, const Clock& clock,
                     const LocalNodeOptions& options)
    : clock_(clock),
      options_(options),
      inbox_(std::make_shared<Inbox>()),
      caller_(api),
      addresses_(options.seed),
      logs_(clock, options.logs),
      events_(caller_, clock, options.seed),
      binder_(caller_, clock, events_, options.scheduler),
      controller_(caller_, clock, events_, options.node_controller),
      prober_(clock),
      context_{.api = caller_,
               .host = host,
               .clock = clock,
               .sweeper = sweeper_,
               .prober = prober_,
               .logs = logs_,
               .events = events_,
               .addresses = addresses_,
               .gpus = gpus_,
               .options = options_.pods,
               .post = [inbox = inbox_](NodeMessage message) {
                 inbox->update([&](Inbox& box) { box.messages.push_back(std::move(message)); });
               }} {
  // The API server may call this after the node is gone.
  auto on_news = [weak = std::weak_ptr<Inbox>(inbox_)] {
    if (auto inbox = weak.lock()) inbox->update([](Inbox& box) { box.api_changed = true; });
  };
  pods_ = api.follow(kPods, on_news);
  nodes_ = api.follow(kNodes, on_news);
  leases_ = api.follow(kLeases, on_news);
  for (const MachineOptions& machine : options_.machines) {
    gpus_.add(machine.name, machine.gpus);
    computers_.try_emplace(machine.name,
                           Computer{Machine(caller_, clock_, machine, options_.heartbeat), {}});
  }
}

Result<std::unique_ptr<LocalNode>> LocalNode::start(NodeApi& api, ProcessHost& host,
                                                    const Clock& clock,
                                                    const LocalNodeOptions& options) {
  TRY(make_private_folder(options.pods.folder));
  TRY(make_private_folder(options.logs.folder));
  std::unique_ptr<LocalNode> node(new LocalNode(api, host, clock, options));
  for (auto& [name, computer] : node->computers_) computer.machine.boot();
  node->thread_ = std::thread([raw = node.get()] { raw->loop(); });
  return node;
}

LocalNode::~LocalNode() {
  kill_all();
  inbox_->update([](Inbox& box) { box.stopping = true; });
  if (thread_.joinable()) thread_.join();
}

void LocalNode::kill_all() {
  inbox_->update([](Inbox& box) { box.kill_all = true; });
}

bool LocalNode::is_empty() {
  std::lock_guard lock(inbox_->mutex);
  return inbox_->empty && !inbox_->api_changed && inbox_->messages.empty();
}

void LocalNode::loop() {
  while (true) {
    std::deque<NodeMessage> messages;
    bool must_kill = false;
    {
      std::unique_lock lock(inbox_->mutex);
      inbox_->empty = workers_.empty();
      inbox_->changed.wait_until(lock, next_deadline(), [this] {
        return inbox_->api_changed || inbox_->stopping || !inbox_->messages.empty() ||
               (inbox_->kill_all && !shutting_down_);
      });
      if (inbox_->stopping && workers_.empty()) return;
      inbox_->api_changed = false;
      messages.swap(inbox_->messages);
      must_kill = inbox_->kill_all && !shutting_down_;
    }
    if (must_kill) {
      shutting_down_ = true;
      for (auto& [uid, worker] : workers_) {
        worker->kill_now();
        mark_due(uid);
      }
    }
    step(std::move(messages));
  }
}

void LocalNode::step(std::deque<NodeMessage> messages) {
  for (const NodeMessage& message : messages) {
    auto worker = workers_.find(message.pod_uid);
    if (worker == workers_.end()) continue;
    worker->second->on_message(message);
    mark_due(message.pod_uid);
  }
  if (!shutting_down_) {
    read(*nodes_, [this](const Json& node, bool deleted) { node_changed(node, deleted); });
    read(*pods_, [this](const Json& pod, bool deleted) { pod_changed(pod, deleted); });
    step_machines();
    // Read new heartbeats before judging them, so that no machine seems silent because this thread
    // is late.
    read(*leases_, [this](const Json& lease, bool deleted) {
      if (!deleted) controller_.lease_changed(lease);
    });
    controller_.step(clock_.now());
    binder_.step();
  }
  step_pods();
  if (TimePoint now = clock_.now(); now >= next_log_check_) {
    next_log_check_ = now + kLogCheck;
    logs_.trim();
  }
}

void LocalNode::read(Feed& feed,
                     const std::function<void(const Json& object, bool deleted)>& apply) {
  for (auto events = feed.next_events(kEventsPerRead); !events.empty();
       events = feed.next_events(kEventsPerRead)) {
    for (const Json& event : events) apply(event["object"], event["type"] == "DELETED");
  }
}

void LocalNode::node_changed(const Json& node, bool deleted) {
  std::string name = string_or(metadata_of(node), "name", "");
  auto computer = computers_.find(name);
  if (deleted) {
    binder_.scheduler().node_gone(name);
    controller_.node_gone(name);
    if (computer != computers_.end()) computer->second.machine.node_gone();
    return;
  }
  binder_.scheduler().node_changed(node);
  controller_.node_changed(node);
  if (computer == computers_.end()) return;
  Computer& known = computer->second;
  known.allocatable = resources_from_json(object_of(object_of(node, "status"), "allocatable"));
  const Json& annotations = object_of(metadata_of(node), "annotations");
  bool wants_off = string_or(annotations, kPowerAnnotation, "on") == "off";
  if (wants_off && (known.machine.is_on() || known.is_booting)) power_off(known);
  if (!wants_off && !known.machine.is_on()) known.is_booting = true;
  known.machine.node_changed(node);
}

void LocalNode::power_off(Computer& computer) {
  computer.machine.power_off();
  computer.is_booting = false;
  for (auto& [uid, worker] : workers_) {
    if (worker->machine() != computer.machine.options().name) continue;
    worker->kill_now();
    mark_due(uid);
  }
}

// Waits until no pod from before the power cut is left, then takes over the machine's pods from the
// server.
void LocalNode::boot(Computer& computer) {
  const std::string& name = computer.machine.options().name;
  bool anything_left = std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second->machine() == name;
  });
  if (anything_left) return;
  computer.is_booting = false;
  computer.machine.boot();
  ApiResponse pods = caller_.get("/api/v1/pods?fieldSelector=spec.nodeName%3D" + name);
  for (const Json& pod : array_of(pods.body, "items")) pod_changed(pod, false);
}

void LocalNode::step_machines() {
  for (auto& [name, computer] : computers_) {
    if (computer.is_booting) boot(computer);
    computer.machine.step(clock_.now());
  }
}

void LocalNode::pod_changed(const Json& pod, bool deleted) {
  std::string uid = uid_of(pod);
  auto worker = workers_.find(uid);
  if (deleted) {
    binder_.scheduler().pod_gone(uid);
    controller_.pod_gone(uid);
    logs_.remove(uid);
    events_.forget(uid);
    if (worker == workers_.end()) return;
    worker->second->gone();
    return mark_due(uid);
  }
  binder_.scheduler().pod_changed(pod, clock_.now());
  controller_.pod_changed(pod);
  auto computer = computers_.find(node_of(pod));
  if (computer == computers_.end() || !computer->second.machine.is_on()) return;
  if (worker != workers_.end()) {
    worker->second->changed(pod);
    return mark_due(uid);
  }
  if (is_terminal(pod) && !is_deleting(pod)) return;
  workers_[uid] = std::make_unique<PodWorker>(context_, computer->second.machine.options(),
                                              computer->second.allocatable, pod);
  mark_due(uid);
}

void LocalNode::step_pods() {
  TimePoint now = clock_.now();
  for (auto at = deadlines_.begin(); at != deadlines_.end() && at->first <= now; ++at)
    due_pods_.insert(at->second);
  std::set<std::string> due = std::exchange(due_pods_, {});
  for (const std::string& uid : due) step_pod(uid);
}

void LocalNode::step_pod(const std::string& uid) {
  if (auto old = deadline_of_.find(uid); old != deadline_of_.end()) {
    deadlines_.erase({old->second, uid});
    deadline_of_.erase(old);
  }
  auto worker = workers_.find(uid);
  if (worker == workers_.end()) return;
  worker->second->step(clock_.now());
  if (worker->second->is_done()) {
    workers_.erase(worker);
    events_.forget(uid);
    return;
  }
  TimePoint next = worker->second->next_deadline();
  if (next == TimePoint::max()) return;
  deadlines_.insert({next, uid});
  deadline_of_[uid] = next;
}

TimePoint LocalNode::next_deadline() const {
  TimePoint next = next_log_check_;
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (shutting_down_) return next;
  next = std::min({next, binder_.next_deadline(), controller_.next_deadline()});
  for (const auto& [name, computer] : computers_)
    next = std::min(next, computer.machine.next_deadline());
  return next;
}

}  // namespace lockstep::local
