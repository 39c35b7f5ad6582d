#pragma once

#include <string>

#include "local/local_cluster.h"

namespace lockstep {

// A kubeconfig with one context, `lockstep`, in the words of `kubectl config view --raw`: the
// server, its certificate as the authority, and the token, all inside the file. Source: Kubernetes,
// "kubeconfig (v1)".
std::string kubeconfig_text(const local::ClusterAccess& access);

}  // namespace lockstep
