#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/kube/kubeconfig.h"

namespace lockstep::kube {

// A credential from a plugin.
struct ExecCredential {
  std::string token;
  std::string certificate_pem;
  std::string key_pem;
  std::optional<WallTime> expires;
};

// Credential plugins. Source: Kubernetes, "client-go credential plugins"; which ones kubectl 1.20
// and 1.33 refuse was tried.

// Returns the document for the plugin's environment variable KUBERNETES_EXEC_INFO. `cluster`: the
// ExecCredential's spec.cluster, included if the plugin wants it.
Json exec_info(const ExecPlugin& plugin, const Json& cluster, bool is_terminal);

// Parses what the plugin printed. kInvalid unless it is an ExecCredential of the plugin's version
// with a token, or with certificate and key.
Result<ExecCredential> parse_exec_credential(const ExecPlugin& plugin, const std::string& output);

// How long to wait for a plugin. After that time, or on a stop request, it is killed.
struct ExecPatience {
  Duration time = std::chrono::minutes(1);
  std::stop_token stop{};
};

// Runs the plugin and waits for its end. Its stderr is ours, and so is its stdin if it may prompt
// and ours is a terminal. kInvalid for an unknown version or mode; kNotFound with the installHint
// if the program does not exist; kUnavailable if it fails, takes too long or needs a terminal that
// is missing.
Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin, const Json& cluster,
                                       const ExecPatience& patience = {});

}  // namespace lockstep::kube
