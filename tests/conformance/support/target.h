#pragma once

#include <string>

#include "common/base/result.h"
#include "tests/conformance/support/connection.h"

namespace lockstep::conformance {

// A server to be tried, and who we are to it.
struct Target {
  Endpoint endpoint;
  std::string token;  // empty: the client's certificate says it
  bool embedded = false;
};

// The server of a kubeconfig's current context. kNotFound, kInvalid: names the file and what is
// missing in it.
Result<Target> target_from_kubeconfig(const std::string& file);

// "http://127.0.0.1:41234"
Result<Endpoint> parse_url(const std::string& url);

}  // namespace lockstep::conformance
