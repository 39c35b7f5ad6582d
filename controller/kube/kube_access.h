#pragma once

#include <string>

#include "controller/kube/credentials.h"
#include "controller/kube/http.h"
#include "controller/kube/kubeconfig.h"

namespace lockstep {

// What the command line says over a kubeconfig; empty: nothing.
struct KubeOverrides {
  std::string context;
  std::string cluster;
  std::string user;
  std::string namespace_;
};

// All that is needed to speak to one API server.
struct KubeAccess {
  std::string context;
  std::string namespace_ = "default";
  HttpServer server;
  CredentialOptions credentials;
};

// Chooses context, cluster and user, reads the files that they name and checks them as kubectl
// does; a plugin is run. To a server without TLS no credentials are sent. kNotFound where a name
// leads nowhere, kInvalid for what can't be carried out (also an auth-provider, which newer
// kubectls don't know, and proxies other than HTTP ones); the message names the entry.
Result<KubeAccess> kube_access(const Kubeconfig& config, const KubeOverrides& overrides);

}  // namespace lockstep
