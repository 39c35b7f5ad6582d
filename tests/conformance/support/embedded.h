#pragma once

#include <memory>

#include "local/http/server.h"
#include "local/store/api.h"
#include "tests/conformance/support/target.h"

namespace lockstep::conformance {

// The embedded API server in this process, with a short history, so that cases can exceed it.
class EmbeddedServer {
 public:
  static Result<std::unique_ptr<EmbeddedServer>> start();

  const Target& target() const { return target_; }

 private:
  EmbeddedServer();

  SystemClock clock_;
  local::Api api_;
  std::unique_ptr<local::ApiServer> server_;
  Target target_;
};

}  // namespace lockstep::conformance
