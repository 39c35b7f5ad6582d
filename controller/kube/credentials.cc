#include "controller/kube/credentials.h"

#include "common/base/base64.h"
#include "common/base/log.h"

namespace lockstep {

Credentials::Credentials(CredentialOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), token_(options_.token_file, clock) {
  if (!options_.username.empty() || !options_.password.empty()) {
    authorization_ = "Basic " + base64_encode(options_.username + ":" + options_.password);
  } else {
    authorization_ = bearer(options_.exec ? options_.exec_first.token : options_.token);
  }
  expires_ = options_.exec_first.expires;
}

const std::string& Credentials::authorization() {
  if (!options_.token_file.empty()) {
    const std::string& token = token_.token();
    if (!token.empty()) authorization_ = bearer(token);
  }
  if (options_.exec && expires_ && clock_.wall_now() >= *expires_) run_plugin();
  return authorization_;
}

bool Credentials::refresh() {
  if (!options_.token_file.empty()) return token_.refresh();
  if (!options_.exec) return false;
  const std::string before = authorization_;
  run_plugin();
  return authorization_ != before;
}

void Credentials::run_plugin() {
  const Result<ExecCredential> credential = run_exec_plugin(*options_.exec, options_.exec_cluster);
  if (!credential.ok()) {
    log_warning("the credential plugin failed", {{"error", credential.error().message}});
    return;
  }
  authorization_ = bearer(credential->token);
  expires_ = credential->expires;
}

}  // namespace lockstep
