#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace lockstep::kube {

// Reads and merges kubeconfig files as kubectl does. Source: Kubernetes, "Organizing Cluster Access
// Using kubeconfig Files"; what that leaves open was tried with kubectl 1.20 and 1.33.

struct KubeconfigCluster {
  std::string server;
  std::string tls_server_name;
  std::string certificate_authority;       // absolute path
  std::string certificate_authority_data;  // decoded
  std::string proxy_url;
  bool insecure_skip_tls_verify = false;
};

// A credential plugin. Source: Kubernetes, "client-go credential plugins".
struct ExecPlugin {
  std::string api_version;
  std::string command;  // absolute path, or a name to look for in PATH
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;  // in addition to the program's own
  std::string install_hint;
  std::string interactive_mode;  // Never, IfAvailable, Always
  bool provide_cluster_info = false;
};

struct KubeconfigUser {
  std::string client_certificate;  // absolute paths
  std::string client_key;
  std::string client_certificate_data;  // decoded
  std::string client_key_data;
  std::string token;
  std::string token_file;
  std::string username;
  std::string password;
  std::string as;  // impersonation
  std::string as_uid;
  std::vector<std::string> as_groups;
  std::map<std::string, std::vector<std::string>> as_user_extra;
  std::string auth_provider;  // its name
  std::optional<ExecPlugin> exec;
};

struct KubeconfigContext {
  std::string cluster;
  std::string user;
  std::string namespace_;
};

struct Kubeconfig {
  std::string current_context;
  std::map<std::string, KubeconfigCluster> clusters;
  std::map<std::string, KubeconfigUser> users;
  std::map<std::string, KubeconfigContext> contexts;
};

// Where to look for kubeconfigs.
struct KubeconfigSources {
  std::string explicit_file;   // --kubeconfig: only this file, which must exist
  std::string environment;     // the variable KUBECONFIG: files, separated by ':'
  std::string home;            // the home folder: <home>/.kube/config if KUBECONFIG is empty
  std::string working_folder;  // base of relative paths in the above
};

// Returns the files that load_kubeconfig() reads, in order.
std::vector<std::string> kubeconfig_files(const KubeconfigSources& sources);

// Reads and merges the files. For each cluster, user and context, and for current-context, the
// first file that has it wins, whole. Missing files are skipped. Relative paths in a file are
// resolved from its folder. kInvalid with the file and the field's path; kNotFound if the explicit
// file does not exist. No file at all gives an empty Kubeconfig.
Result<Kubeconfig> load_kubeconfig(const KubeconfigSources& sources);

// Parses one file's text; `folder` is the base of its relative paths.
Result<Kubeconfig> parse_kubeconfig(const std::string& text, const std::string& folder);

}  // namespace lockstep::kube
