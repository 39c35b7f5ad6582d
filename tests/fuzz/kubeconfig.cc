// A kubeconfig, and what its credential plugin prints.
#include "controller/kube/kubeconfig.h"

#include "common/base/check.h"
#include "controller/kube/exec_credential.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr char kFolder[] = "/home/user/.kube";

// A path of a file is absolute, so that it does not depend on where the program was started.
void check_path(const std::string& path) {
  CHECK(path.empty() || path.front() == '/');
}

void check_user(const kube::KubeconfigUser& user) {
  check_path(user.client_certificate);
  check_path(user.client_key);
  check_path(user.token_file);
  if (!user.exec) return;
  if (user.exec->command.find('/') != std::string::npos) check_path(user.exec->command);
}

void check_plugin_output(const std::string& text) {
  kube::ExecPlugin plugin;
  plugin.api_version = "client.authentication.k8s.io/v1";
  const Result<kube::ExecCredential> credential = kube::parse_exec_credential(plugin, text);
  if (credential.ok()) {
    CHECK(!credential->token.empty() || !credential->certificate_pem.empty());
    CHECK(credential->certificate_pem.empty() == credential->key_pem.empty());
  } else {
    CHECK(credential.error().code == Code::kInvalid && !credential.error().message.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::fuzz_text(data, size));
  const Result<kube::Kubeconfig> config = kube::parse_kubeconfig(text, kFolder);
  if (config.ok()) {
    for (const auto& [name, cluster] : config->clusters) check_path(cluster.certificate_authority);
    for (const auto& [name, user] : config->users) check_user(user);
  } else {
    CHECK(config.error().code == Code::kInvalid && !config.error().message.empty());
  }
  check_plugin_output(text);
  return 0;
}
