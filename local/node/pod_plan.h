#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "local/node/quantity.h"

namespace lockstep::local {

struct ProbePlan {
  enum class Kind { kExec, kHttp, kTcp };
  Kind kind = Kind::kExec;
  std::vector<std::string> command;
  std::string path;
  std::string host;  // empty: the pod's address
  uint16_t port = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  Duration initial_delay{};
  Duration period = std::chrono::seconds(10);
  Duration timeout = std::chrono::seconds(1);
  int64_t success_threshold = 1;
  int64_t failure_threshold = 3;
  std::optional<int64_t> grace_seconds;
};

struct MountPlan {
  std::string mount_path;
  std::string volume;
  std::string sub_path;
};

struct ContainerPlan {
  std::string name;
  std::string image;
  std::vector<std::string> command;  // with arguments, $(NAME) not yet replaced
  Json environment = Json::array();  // env, verbatim
  Json environment_from = Json::array();
  std::vector<MountPlan> mounts;  // parents before their children
  std::string working_folder;
  std::string termination_message_path = "/dev/termination-log";
  bool message_falls_back_to_log = false;
  std::optional<ProbePlan> startup;
  std::optional<ProbePlan> liveness;
  std::optional<ProbePlan> readiness;
  std::vector<std::string> post_start;  // empty: none
  std::vector<std::string> pre_stop;
  Resources limits;
  Resources requests;
};

enum class RestartPolicy { kAlways, kOnFailure, kNever };

// How a local node runs a pod, derived from the pod object alone.
struct PodPlan {
  std::string namespace_;
  std::string name;
  std::string uid;
  std::vector<ContainerPlan> init_containers;
  std::vector<ContainerPlan> containers;
  Json volumes = Json::array();  // only mounted ones, verbatim
  RestartPolicy restart_policy = RestartPolicy::kAlways;
  std::vector<uint16_t> ports;
  int64_t grace_seconds = 30;
  std::optional<int64_t> active_deadline_seconds;
};

// kInvalid, naming the field: not supported by a local node.
Result<PodPlan> plan_pod(const Json& pod);

// Returns a kInvalid error: "<path>: a local node <why>".
Error cannot(const std::string& path, const std::string& why);
// True if the path is absolute and can't leave the pod's folder.
bool is_inside_path(const std::string& path);

// Returns the TCP ports that the pod declares; needed before its address is chosen.
std::vector<uint16_t> container_ports(const Json& pod);

}  // namespace lockstep::local
