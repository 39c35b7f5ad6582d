#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace lockstep {

// kubeconfig files, read and merged as kubectl does. Source: Kubernetes, "Organizing Cluster Access
// Using kubeconfig Files"; what that leaves open was tried with kubectl 1.20 and 1.33.

struct KubeconfigCluster {
  std::string server;
  std::string tls_server_name;
  std::string certificate_authority;       // absolute path
  std::string certificate_authority_data;  // decoded
  std::string proxy_url;
  bool insecure_skip_tls_verify = false;
};

// A program that gives credentials. Source: Kubernetes, "client-go credential plugins".
struct ExecPlugin {
  std::string api_version;
  std::string command;  // absolute path, or a name to look for in PATH
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;  // beside the program's own
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

// Where kubeconfigs are looked for.
struct KubeconfigSources {
  std::string explicit_file;   // --kubeconfig: this one alone, and it must be there
  std::string environment;     // the variable KUBECONFIG: files, separated by ':'
  std::string home;            // the folder: <home>/.kube/config where KUBECONFIG is empty
  std::string working_folder;  // of relative paths in the above
};

// The files that load_kubeconfig() reads, in their order.
std::vector<std::string> kubeconfig_files(const KubeconfigSources& sources);

// Reads and merges: of each cluster, user, context, and of current-context, the first file that has
// it wins, whole; files that are not there are passed over. Relative paths in a file are made
// absolute from its folder. kInvalid with the file and the field's path; kNotFound where the
// explicit file is not there. No file at all gives an empty Kubeconfig.
Result<Kubeconfig> load_kubeconfig(const KubeconfigSources& sources);

// One file's text; `folder` is where its relative paths begin.
Result<Kubeconfig> parse_kubeconfig(const std::string& text, const std::string& folder);

// The context (empty: the current one) with its cluster and user alone, as `kubectl config view
// --minify --raw -o json` prints it, but for absolute paths and for fields that are not read here.
// kNotFound where the context, or what it names, is not there.
Result<Json> minified_kubeconfig(const Kubeconfig& config, const std::string& context);

}  // namespace lockstep
