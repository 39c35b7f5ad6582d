#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/kube/kubeconfig.h"

namespace lockstep {

// What a plugin gave.
struct ExecCredential {
  std::string token;
  std::string certificate_pem;
  std::string key_pem;
  std::optional<WallTime> expires;
};

// Programs that give credentials. Source: Kubernetes, "client-go credential plugins"; which ones
// kubectl 1.20 and 1.33 refuse was tried.

// The document for the plugin's environment variable KUBERNETES_EXEC_INFO. `cluster`: the
// ExecCredential's spec.cluster, where the plugin wants it.
Json exec_info(const ExecPlugin& plugin, const Json& cluster, bool is_terminal);

// Reads what the plugin printed. kInvalid where it is no ExecCredential of the plugin's version
// with a token, or with certificate and key.
Result<ExecCredential> parse_exec_credential(const ExecPlugin& plugin, const std::string& output);

// How long a plugin is waited for; then, or when it is told to stop, it is killed.
struct ExecPatience {
  Duration time = std::chrono::minutes(1);
  std::stop_token stop{};
};

// Runs the plugin and waits for its end; its stderr is ours, its stdin too where it may ask and
// ours is a terminal. kInvalid for a version or mode that isn't one, kNotFound with the installHint
// where there is no such program, kUnavailable where it fails or takes too long.
Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin, const Json& cluster,
                                       const ExecPatience& patience = {});

}  // namespace lockstep
