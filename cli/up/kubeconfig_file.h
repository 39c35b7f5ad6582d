#pragma once

#include <string>

#include "local/local_cluster.h"

namespace lockstep::cli {

// Returns a kubeconfig with one context, `lockstep`, in the format of `kubectl config view --raw`:
// the server, its certificate as the CA, and the token, all inline. Source: Kubernetes, "kubeconfig
// (v1)".
std::string kubeconfig_text(const local::ClusterAccess& access);

}  // namespace lockstep::cli
