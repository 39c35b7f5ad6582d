// Faults of nodes.
#include <algorithm>

#include "controller/plan/names.h"
#include "tests/controller/sim/nodes.h"

namespace lockstep::sim {
namespace {

constexpr int64_t kGraceSeconds = 30;
constexpr double kSlowMin = 2;  // times as long as usual
constexpr double kSlowMore = 2;
constexpr Duration kSlowFor = std::chrono::seconds(10);
constexpr Duration kSlowForMost = std::chrono::seconds(120);

constexpr Fault kFaultsOfPods[] = {Fault::kPodDeleted, Fault::kPodForceDeleted, Fault::kEvicted,
                                   Fault::kContainerExit, Fault::kNodeLost};

}  // namespace

void Nodes::count_failure(const std::string& job_uid) {
  ++failures_caused_;
  if (on_failure) on_failure(job_uid);
}

// A worker of the built-in loop can hang if another node of its round is left to notice.
bool Nodes::can_hang(const Node& node) const {
  return node.trains() && std::any_of(nodes_.begin(), nodes_.end(), [&node](const auto& entry) {
           const Node& other = *entry.second;
           return &other != &node && other.job_uid == node.job_uid && other.answers() &&
                  other.state.hash == node.state.hash && other.trains();
         });
}

void Nodes::cause(Fault fault, const std::string& pod_key) {
  Node& node = *nodes_.at(uid_of(*store_.find(loop::kPods, pod_key)));
  count_failure(node.job_uid);
  if (fault != Fault::kWorkerKilled) return lose(node, fault);
  fail(node, kExitKilled, "Signal");
}

void Nodes::cause_failures() {
  if (chance_.is_quiet) return;
  std::vector<std::string> uids;
  for (const auto& [uid, node] : nodes_) {
    if (node->answers()) uids.push_back(uid);
  }
  for (const std::string& uid : uids) {
    const auto found = nodes_.find(uid);
    if (found != nodes_.end()) cause_failure(*found->second);
  }
  chance_.timers.after(kFailureTick, [this] { cause_failures(); });
}

void Nodes::cause_failure(Node& node) {
  if (node.state.phase == "Running" && chance_.happens(Fault::kWorkerKilled, node.key)) {
    count_failure(node.job_uid);
    fail(node, kExitKilled, "Signal");
  } else if (node.state.phase == "Running" && chance_.happens(Fault::kWorkerOom, node.key)) {
    count_failure(node.job_uid);
    fail(node, kExitKilled, "OOMKilled");
  } else if (node.state.phase == "Running" && chance_.happens(Fault::kWorkerExit, node.key)) {
    count_failure(node.job_uid);
    fail(node, kExitOfRules, "Error");
  } else if (can_hang(node) && chance_.happens(Fault::kWorkerHung, node.key)) {
    count_failure(node.job_uid);
    node.hung_at = chance_.clock.now();
  } else if (node.state.phase == "Running" && node.machine == bad_machine_ &&
             chance_.happens(Fault::kBadMachine, node.key)) {
    count_failure(node.job_uid);
    fail(node, kExitKilled, "Signal");
  }
  if (node.trains() && chance_.happens(Fault::kRankSlow, node.key)) {
    node.slow.factor = kSlowMin + kSlowMore * static_cast<double>(chance_.random.uniform());
    node.slow.until = chance_.clock.now() + chance_.between(kSlowFor, kSlowForMost);
  }
  for (const Fault fault : kFaultsOfPods) {
    if (!chance_.happens(fault, node.key)) continue;
    count_failure(node.job_uid);
    lose(node, fault);
    return;
  }
}

void Nodes::lose(Node& node, Fault fault) {
  const std::string key = node.key;
  switch (fault) {
    case Fault::kPodDeleted:
      store_.mark_deleted(loop::kPods, key, chance_.clock.wall_now(), kGraceSeconds);
      break;
    case Fault::kPodForceDeleted:
      store_.remove(loop::kPods, key);
      break;
    case Fault::kEvicted:
      end(node, "Evicted", kExitKilled);
      break;
    case Fault::kContainerExit:
      end_beside_sidecar(node);
      break;
    default:
      node.is_silent = true;
      node.lost_at = chance_.clock.now();
      losses_.push_back(node.lost_at);
      // Peers either see its connections close or hear nothing, in which case its worker looks
      // hung.
      if (can_hang(node) && chance_.flip(0.5)) node.hung_at = node.lost_at;
      schedule_advance(node.job_uid, Duration{0});
  }
}

}  // namespace lockstep::sim
