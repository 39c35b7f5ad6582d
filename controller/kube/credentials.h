#pragma once

#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "controller/kube/exec_credential.h"
#include "controller/kube/http.h"
#include "controller/kube/token_source.h"

namespace lockstep {

// Who asks, to an API server. At most one of token, user name and plugin.
struct CredentialOptions {
  std::string token{};
  std::string token_file{};  // goes before `token` while it can be read
  std::string username{};
  std::string password{};
  std::optional<ExecPlugin> exec{};
  Json exec_cluster{};              // for the plugin
  ExecCredential exec_first{};      // what it gave already
  std::vector<HttpField> fields{};  // of each request: impersonation
  // Whoever must not stand still has the plugin run beside it, from a minute before its credential
  // expires: until it has ended the last one stays.
  bool waits_for_plugin = true;
};

// The Authorization of requests, kept fresh. Used from one thread.
class Credentials {
 public:
  // `clock` outlives it.
  Credentials(CredentialOptions options, const Clock& clock);

  // Empty: none. A plugin whose credential has expired is run; where it fails the last one stays,
  // and it is left in peace for a while.
  const std::string& authorization();
  const std::vector<HttpField>& fields() const { return options_.fields; }
  // The server refused it. Whether there is another one now.
  bool refresh();
  // The client certificate and its key, if the plugin has given others since this was last asked.
  std::optional<std::pair<std::string, std::string>> take_certificate();

 private:
  void run_plugin();
  void take_result();
  void take(const Result<ExecCredential>& credential);

  CredentialOptions options_;
  const Clock& clock_;
  TokenSource token_;
  std::string authorization_;
  std::pair<std::string, std::string> certificate_;
  bool has_new_certificate_ = false;
  std::optional<WallTime> expires_;
  TimePoint rested_at_{};                       // the plugin isn't run before
  std::future<Result<ExecCredential>> result_;  // of the plugin that runs beside
  std::jthread thread_;
};

}  // namespace lockstep
