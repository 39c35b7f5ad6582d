#include "tests/conformance/support/embedded.h"

#include <iostream>
#include <random>

namespace lockstep::conformance {
namespace {

constexpr char kToken[] = "conformance";
constexpr size_t kHistory = 400;

uint64_t new_seed() {
  std::random_device device;
  uint64_t seed = (uint64_t{device()} << 32) | device();
  std::cout << "seed of the embedded server: " << seed << "\n";
  return seed;
}

}  // namespace

EmbeddedServer::EmbeddedServer() : api_(clock_, new_seed(), {.history_max = kHistory}) {}

Result<std::unique_ptr<EmbeddedServer>> EmbeddedServer::start() {
  std::unique_ptr<EmbeddedServer> embedded(new EmbeddedServer);
  TRY_ASSIGN(embedded->server_, local::ApiServer::start(embedded->api_, {.token = kToken}));
  TRY_ASSIGN(embedded->target_.endpoint, parse_url(embedded->server_->url()));
  embedded->target_.headers["Authorization"] = std::string("Bearer ") + kToken;
  embedded->target_.embedded = true;
  return embedded;
}

}  // namespace lockstep::conformance
