#pragma once

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::local {

// Returns the cells of a pod: NAME, READY, STATUS, RESTARTS, AGE, IP, NODE, NOMINATED NODE,
// READINESS GATES. STATUS is the most specific reason: that of the first unfinished init container
// ("Init:CrashLoopBackOff", "Init:0/1"), else of a container ("Error", "Completed"), else of the
// pod, else its phase. It is "Terminating" during deletion. RESTARTS includes the age of the last
// restart.
// Source: the behaviour of kube-apiserver 1.27 with `kubectl get pods`.
Json pod_cells(const Json& pod, WallTime now);

}  // namespace lockstep::local
