#pragma once

#include <string>

#include "common/base/json.h"
#include "controller/kube/kubeconfig.h"

namespace lockstep::kube {

// Returns the context (empty: the current one) with only its cluster and user, as `kubectl config
// view --minify --raw -o json` prints it, except for absolute paths and fields that kubeconfig.h
// does not read. kNotFound if the context, or what it names, does not exist.
Result<Json> minified_kubeconfig(const Kubeconfig& config, const std::string& context);

}  // namespace lockstep::kube
