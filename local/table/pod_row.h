#pragma once

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::local {

// The cells of a pod: NAME, READY, STATUS, RESTARTS, AGE, IP, NODE, NOMINATED NODE, READINESS
// GATES. STATUS is the reason that says most: of the first init container that is not done
// ("Init:CrashLoopBackOff", "Init:0/1"), else of a container ("Error", "Completed"), else of the
// pod, else its phase; "Terminating" while it is being deleted. RESTARTS says how long ago the last
// one was. Source: the behaviour of kube-apiserver 1.27 with `kubectl get pods`.
Json pod_cells(const Json& pod, WallTime now);

}  // namespace lockstep::local
