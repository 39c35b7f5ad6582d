#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "local/node/api_caller.h"
#include "local/node/gpu_pool.h"

namespace lockstep::local {

// One of the machines that this computer pretends to be.
struct MachineOptions {
  std::string name = "local";
  std::string address = "127.0.0.1";
  std::vector<int> cpus;     // those that its pods' processes may use; empty: all
  int64_t memory_bytes = 0;  // 0: the computer's
  Gpus gpus;
  int64_t pods_max = 110;  // as a kubelet's
};

struct HeartbeatOptions {
  Duration lease_interval = std::chrono::seconds(4);
  Duration status_interval = std::chrono::seconds(60);
};

// The computer divided: `count` machines with an equal share of its CPUs (at least one each) and
// GPUs, on 127.0.0.1 and following; named by `names`, then local-0, local-1, ...
std::vector<MachineOptions> divided_computer(size_t count, const std::vector<std::string>& names);

// A machine as the Api sees it: its Node object, and its heartbeats (a Lease in kube-node-lease and
// the node's status), which stop while its power is off. Not thread-safe.
class Machine {
 public:
  // `api` and `clock` outlive it.
  Machine(ApiCaller& api, const Clock& clock, MachineOptions options, HeartbeatOptions heartbeat);

  const MachineOptions& options() const { return options_; }
  // Makes its objects where they aren't there, and says that it is ready.
  void boot();
  // No heartbeat until boot().
  void power_off() { on_ = false; }
  bool is_on() const { return on_; }

  // Its Node object as it is now: what somebody else has written into its Ready condition is put
  // right.
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
