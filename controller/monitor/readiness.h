#pragma once

#include "controller/loop/controller.h"
#include "controller/monitor/probes.h"

namespace lockstep::monitor {

// Returns whether the caches are filled and the lease can be read and written, also by a standby. A
// replica that could never lead is not ready.
Readiness readiness_of(const loop::Controller& controller);

}  // namespace lockstep::monitor
