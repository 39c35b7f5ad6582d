#pragma once

#include "controller/plan/pod_view.h"

namespace lockstep {

// Why a pod ended, or is being ended, as a stable word whatever the server's version says it in:
// OOMKilled, StartError, Evicted, Preempted, NodeTainted, NodeShutdown, NodeNotReady, NodeDeleted,
// PodRejected (by the kubelet, before it ran), NoAddress (by a local node), else PodDeleted if it
// is being deleted, else PodFailed. Sources: k8s.io/api/core/v1 (reasons of DisruptionTarget), the
// kubelet's eviction, preemption, nodeshutdown and lifecycle packages.
const char* end_of_pod(const PodView& pod);

// Why a pod that isn't running yet can't start: ImagePullFailed, ContainerCreateFailed; nullptr
// where it is merely on its way. The kubelet goes on trying.
const char* start_trouble(const PodView& pod);

}  // namespace lockstep
