#include "controller/kube/credentials.h"

#include "common/base/base64.h"
#include "common/base/log.h"

namespace lockstep::kube {
namespace {

constexpr Duration kRest = std::chrono::seconds(20);
constexpr Duration kAhead = std::chrono::minutes(1);  // how long a plugin may take

}  // namespace

Credentials::Credentials(CredentialOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), token_(options_.token_file, clock) {
  if (!options_.username.empty() || !options_.password.empty()) {
    authorization_ = "Basic " + base64_encode(options_.username + ":" + options_.password);
  } else {
    authorization_ = bearer(options_.exec ? options_.exec_first.token : options_.token);
  }
  certificate_ = {options_.exec_first.certificate_pem, options_.exec_first.key_pem};
  expires_ = options_.exec_first.expires;
}

const std::string& Credentials::authorization() {
  if (!options_.token_file.empty()) {
    const std::string& token = token_.token();
    if (!token.empty()) authorization_ = bearer(token);
  }
  take_result();
  const Duration ahead = options_.waits_for_plugin ? Duration{0} : kAhead;
  if (options_.exec && expires_ && clock_.wall_now() >= *expires_ - ahead) run_plugin();
  return authorization_;
}

bool Credentials::refresh() {
  if (!options_.token_file.empty()) return token_.refresh();
  if (!options_.exec) return false;
  const std::string before = authorization_;
  take_result();
  const auto is_other = [&] { return authorization_ != before || has_new_certificate_; };
  if (!is_other()) run_plugin();
  return is_other();
}

std::optional<std::pair<std::string, std::string>> Credentials::take_certificate() {
  if (!std::exchange(has_new_certificate_, false)) return std::nullopt;
  return certificate_;
}

void Credentials::run_plugin() {
  if (clock_.now() < rested_at_ || result_.valid()) return;
  if (options_.waits_for_plugin) {
    take(run_exec_plugin(*options_.exec, options_.exec_cluster));
    return;
  }
  std::promise<Result<ExecCredential>> promise;
  result_ = promise.get_future();
  thread_ = std::jthread([plugin = *options_.exec, cluster = options_.exec_cluster,
                          promise = std::move(promise)](const std::stop_token& stop) mutable {
    promise.set_value(run_exec_plugin(plugin, cluster, {.stop = stop}));
  });
}

void Credentials::take_result() {
  if (!result_.valid() || result_.wait_for(Duration{0}) != std::future_status::ready) return;
  take(result_.get());
  rested_at_ = clock_.now() + kRest;
}

void Credentials::take(const Result<ExecCredential>& credential) {
  const Status status =
      credential.ok() ? check_client_certificate(credential->certificate_pem, credential->key_pem)
                      : Status(credential.error());
  if (!status.ok()) {
    log_warning("the credential plugin failed", {{"error", status.error().message}});
    rested_at_ = clock_.now() + kRest;
    return;
  }
  std::pair certificate(credential->certificate_pem, credential->key_pem);
  if (!certificate.first.empty() && certificate != certificate_) {
    certificate_ = std::move(certificate);
    has_new_certificate_ = true;
  }
  authorization_ = bearer(credential->token);
  expires_ = credential->expires;
}

}  // namespace lockstep::kube
