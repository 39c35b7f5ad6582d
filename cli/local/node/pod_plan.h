#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// A volume of the container: a folder at `mount_path` below the pod's root.
struct VolumePlan {
  std::string mount_path;
  std::string secret;  // name of the Secret whose data become files; empty: an empty folder
  bool optional = false;
};

// What a local node does to run a pod, read from the pod alone.
struct PodPlan {
  std::string namespace_;
  std::string name;
  std::string uid;
  std::string container;
  std::vector<std::string> command;  // with the arguments
  // In the document's order. Values that only the node knows are asked of `fields`.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<VolumePlan> volumes;
  std::vector<uint16_t> ports;
  std::string working_folder;  // empty: the pod's root
  std::string termination_message_path = "/dev/termination-log";
  bool message_falls_back_to_log = false;
};

struct NodeFacts {
  std::string node_name;
  std::string pod_address;
};

// kInvalid, naming the field: what a local node can't do (several containers, init containers,
// other restart policies than Never, other volumes, no command).
Result<PodPlan> plan_pod(const Json& pod, const NodeFacts& facts);

// TCP ports that the pod says it will listen on; needed before its address is known.
std::vector<uint16_t> container_ports(const Json& pod);

}  // namespace lockstep::local
