#pragma once

#include <map>
#include <string>

#include "common/base/result.h"
#include "tests/conformance/support/connection.h"

namespace lockstep::conformance {

// A server to test and the credentials for it.
struct Target {
  Endpoint endpoint;
  std::string path_prefix;                     // of the server's URL; "" or "/..."
  std::map<std::string, std::string> headers;  // credentials, if not the client's certificate
  bool embedded = false;
  bool run_unsupported_cases = false;  // also run cases that the embedded server doesn't support
};

// Reads the server of a kubeconfig's context (empty: the current one) as the controller does: a
// relative path in the file is relative to the file, plugins are run. kNotFound and kInvalid name
// what is missing, or what this suite doesn't support (proxies).
Result<Target> target_from_kubeconfig(const std::string& file, const std::string& context);

// Parses a URL such as "http://127.0.0.1:41234".
Result<Endpoint> parse_url(const std::string& url);

}  // namespace lockstep::conformance
