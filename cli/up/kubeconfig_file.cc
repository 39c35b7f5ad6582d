#include "cli/up/kubeconfig_file.h"

#include "common/base/base64.h"

namespace lockstep::cli {

std::string kubeconfig_text(const local::ClusterAccess& access) {
  std::string authority;
  if (!access.certificate.empty())
    authority = "    certificate-authority-data: " + base64_encode(access.certificate) + "\n";
  return "apiVersion: v1\n"
         "kind: Config\n"
         "current-context: lockstep\n"
         "clusters:\n"
         "- name: lockstep\n"
         "  cluster:\n"
         "    server: " +
         access.url + "\n" + authority +
         "contexts:\n"
         "- name: lockstep\n"
         "  context:\n"
         "    cluster: lockstep\n"
         "    namespace: default\n"
         "    user: lockstep\n"
         "users:\n"
         "- name: lockstep\n"
         "  user:\n"
         "    token: " +
         access.token + "\n";
}

}  // namespace lockstep::cli
