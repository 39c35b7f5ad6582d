#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "local/node/api_caller.h"
#include "local/node/gpu_pool.h"

namespace lockstep::local {

// One of the machines that this computer simulates.
struct MachineOptions {
  std::string name = "local";
  std::string address = "127.0.0.1";
  std::vector<int> cpus;     // CPUs that its pods may use; empty: all
  int64_t memory_bytes = 0;  // 0: the computer's
  Gpus gpus;
  int64_t pods_max = 110;  // kubelet's default
};

struct HeartbeatOptions {
  Duration lease_interval = std::chrono::seconds(4);
  Duration status_interval = std::chrono::seconds(60);
};

// Divides this computer into `count` machines with equal shares of its CPUs (at least one each) and
// GPUs, at 127.0.0.1 and following. Machines without an entry in `names` are named local-<index>.
std::vector<MachineOptions> divided_computer(size_t count, const std::vector<std::string>& names);

// A machine as the API server sees it: its Node object and its heartbeats (a Lease in
// kube-node-lease and the node's status), which stop while its power is off. Not thread-safe.
class Machine {
 public:
  // `api` and `clock` outlive the machine.
  Machine(ApiCaller& api, const Clock& clock, MachineOptions options, HeartbeatOptions heartbeat);

  const MachineOptions& options() const { return options_; }
  // Creates its objects if they are missing and reports the machine ready.
  void boot();
  // Stops the heartbeats until boot().
  void power_off() { on_ = false; }
  bool is_on() const { return on_; }

  // Handles a change of its Node object: restores the Ready condition if somebody else changed it.
  void node_changed(const Json& node);
  void node_gone();
  void step(TimePoint now);
  TimePoint next_deadline() const;

 private:
  void write_status();
  void renew_lease();

  ApiCaller& api_;
  const Clock& clock_;
  const MachineOptions options_;
  const HeartbeatOptions heartbeat_;
  bool on_ = false;
  WallTime ready_since_{};
  std::string boot_id_;
  std::string uid_;  // of the Node object
  TimePoint next_lease_{};
  TimePoint next_status_{};
};

}  // namespace lockstep::local
