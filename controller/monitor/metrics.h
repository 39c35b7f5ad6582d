#pragma once

#include <string>

#include "controller/kube/request_metrics.h"
#include "controller/loop/controller.h"

namespace lockstep::monitor {

struct MetricsSources {
  const loop::Controller& controller;
  const kube::RequestMetrics& requests;
  size_t requests_waiting = 0;
  std::string api_host{};  // of the API server
  std::string version{};
  WallTime wall_now{};
};

// Returns the metrics in the Prometheus text format: our own, and those that controllers usually
// have, under the names of controller-runtime and client-go. Call it on the controller's thread.
std::string render_metrics(const MetricsSources& sources);

}  // namespace lockstep::monitor
