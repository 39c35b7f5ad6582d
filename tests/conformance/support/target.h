#pragma once

#include <map>
#include <string>

#include "common/base/result.h"
#include "tests/conformance/support/connection.h"

namespace lockstep::conformance {

// A server to be tried, and who we are to it.
struct Target {
  Endpoint endpoint;
  std::string path_prefix;                     // of the server's URL; "" or "/..."
  std::map<std::string, std::string> headers;  // who asks, unless the client's certificate says it
  bool embedded = false;
  bool ask_everything = false;  // of the embedded one also what it doesn't support
};

// The server of a context (empty: the current one) of a kubeconfig, read as the controller reads
// it: a relative path in the file is relative to it, plugins are run. kNotFound, kInvalid: names
// what is missing, or what this suite can't do (proxies).
Result<Target> target_from_kubeconfig(const std::string& file, const std::string& context);

// "http://127.0.0.1:41234"
Result<Endpoint> parse_url(const std::string& url);

}  // namespace lockstep::conformance
