#pragma once

#include <optional>
#include <string>

#include "cli/local/node/process_host.h"
#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::local {

// The status of a pod as a kubelet writes it, from what happened to its container.
// Source: Kubernetes, "Pod Lifecycle".
struct ContainerFacts {
  std::string container;
  std::string image;
  std::string address;
  std::string host_address;
  std::string container_id;
  WallTime started{};
};

struct EndFacts {
  int exit_code = 0;
  int signal = 0;
  std::string reason;   // Completed, Error, StartError
  std::string message;  // the termination message
  WallTime finished{};
};

// Pending: the container can't be made yet, and why.
Json waiting_status(const ContainerFacts& facts, std::string_view reason, std::string_view message);
Json running_status(const ContainerFacts& facts);
// Succeeded or Failed, by the exit code.
Json ended_status(const ContainerFacts& facts, const EndFacts& end);
// Failed before anything ran; `reason` is that of the pod.
Json refused_status(std::string_view reason, std::string_view message);

}  // namespace lockstep::local
