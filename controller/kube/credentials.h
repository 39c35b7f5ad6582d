#pragma once

#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "controller/kube/bearer_token_file.h"
#include "controller/kube/exec_credential.h"
#include "controller/kube/http.h"

namespace lockstep::kube {

// The client's identity to an API server. At most one of token, user name and plugin.
struct CredentialOptions {
  std::string token{};
  std::string token_file{};  // wins over `token` while it can be read
  std::string username{};
  std::string password{};
  std::optional<ExecPlugin> exec{};
  Json exec_cluster{};              // for the plugin
  ExecCredential exec_first{};      // the plugin's first credential
  std::vector<HttpField> fields{};  // for each request: impersonation
  // If false, callers never block on the plugin: it runs in the background, from a minute before
  // its credential expires. The old credential stays in use until the plugin has ended.
  bool waits_for_plugin = true;
};

// Keeps the Authorization of requests fresh. Used from one thread.
class Credentials {
 public:
  // `clock` must outlive this object.
  Credentials(CredentialOptions options, const Clock& clock);

  // Returns the Authorization of the next request; empty for none. Runs a plugin whose credential
  // has expired. If the plugin fails, the old credential stays, and the plugin is not run again for
  // a while.
  const std::string& authorization();
  const std::vector<HttpField>& fields() const { return options_.fields; }
  // The server refused the credential. Returns whether there is another one now.
  bool refresh();
  // Returns the client certificate and its key if the plugin has given new ones since the last
  // call.
  std::optional<std::pair<std::string, std::string>> take_certificate();

 private:
  void run_plugin();
  void take_result();
  void take(const Result<ExecCredential>& credential);

  CredentialOptions options_;
  const Clock& clock_;
  BearerTokenFile token_;
  std::string authorization_;
  std::pair<std::string, std::string> certificate_;
  bool has_new_certificate_ = false;
  std::optional<WallTime> expires_;
  TimePoint rested_at_{};                       // the plugin does not run before this time
  std::future<Result<ExecCredential>> result_;  // of the plugin that runs in the background
  std::jthread thread_;
};

}  // namespace lockstep::kube
