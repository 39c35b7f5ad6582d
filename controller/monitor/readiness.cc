#include "controller/monitor/readiness.h"

#include <string>

namespace lockstep::monitor {

Readiness readiness_of(const loop::Controller& controller) {
  if (!controller.synced()) {
    std::string missing;
    if (!controller.jobs().synced()) missing += " trainingjobs";
    if (!controller.pods().synced()) missing += " pods";
    if (!controller.knows_policies()) missing += " networkpolicies";
    return {.why_not = "not listed yet:" + missing};
  }
  std::string trouble = controller.lease_trouble();
  return {.is_ready = trouble.empty(), .why_not = std::move(trouble)};
}

}  // namespace lockstep::monitor
