#pragma once

#include "controller/plan/pod_view.h"

namespace lockstep::plan {

// Returns why a pod ended or is ending, as a word that does not depend on the server's version:
// OOMKilled, StartError, Evicted, Preempted, NodeTainted, NodeShutdown, NodeNotReady, NodeDeleted,
// PodRejected (by the kubelet, before it ran), NoAddress (by a local node), else PodDeleted if it
// is being deleted, else PodFailed. Sources: k8s.io/api/core/v1 (reasons of DisruptionTarget), the
// kubelet's eviction, preemption, nodeshutdown and lifecycle packages.
const char* end_of_pod(const PodView& pod);

// Returns why a pod that does not run yet can't start: ImagePullFailed, ContainerCreateFailed;
// nullptr if it is starting normally. The kubelet keeps trying.
const char* start_trouble(const PodView& pod);

}  // namespace lockstep::plan
