#pragma once

#include <string>

#include "controller/kube/credentials.h"
#include "controller/kube/http.h"
#include "controller/kube/kubeconfig.h"

namespace lockstep::kube {

// Overrides of a kubeconfig from the command line; empty: none.
struct KubeOverrides {
  std::string context;
  std::string cluster;
  std::string user;
  std::string namespace_;
};

// Everything needed to talk to one API server.
struct KubeAccess {
  std::string namespace_ = "default";
  HttpServer server;
  CredentialOptions credentials;
};

// Chooses context, cluster and user, reads the files that they name and checks them as kubectl
// does. Runs the plugin if there is one. Sends no credentials to a server without TLS. kNotFound if
// a name leads nowhere. kInvalid for what is malformed or not supported (also an auth-provider,
// which newer kubectls don't know, and proxies other than HTTP ones). The message names the entry.
Result<KubeAccess> kube_access(const Kubeconfig& config, const KubeOverrides& overrides);

// Where a namespace can come from; empty: from nowhere.
struct LeaseNamespace {
  std::string of_pod;      // the service account's, for a program that uses it
  std::string of_flag;     // --namespace
  std::string of_context;  // of the kubeconfig
};
// Returns the namespace of the controller's Lease: the first of these that is set, else "default".
std::string lease_namespace(const LeaseNamespace& sources);

}  // namespace lockstep::kube
