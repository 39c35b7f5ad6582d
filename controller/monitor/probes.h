#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/http/server.h"

namespace lockstep {

// What a probe finds.
struct Readiness {
  bool is_ready = false;
  std::string why_not{};
};

struct ProbeSources {
  std::function<Readiness()> readiness;
  std::function<std::string()> metrics;  // the Prometheus text format
  // Has the call made on the controller's thread. A thread that doesn't turn answers no probe,
  // which is what a liveness probe is for.
  std::function<void(std::function<void()>)> post;
};

// GET /healthz (the controller's thread turns), /readyz (its caches are filled; not whether it
// leads, or a rollout of replicas could not end), /metrics. No secrets are in any of them.
class Probes final : public http::Handler {
 public:
  explicit Probes(ProbeSources sources) : sources_(std::move(sources)) {}

  http::Admission admit(const http::Head& head) const override;
  void handle(http::Request request, Respond respond) override;
  http::Response error(unsigned status, const std::string& message) const override;

 private:
  ProbeSources sources_;
};

struct ListenAddress {
  std::string ip;  // empty: all of this machine's
  int port = 0;    // 0: chosen by the system
};
// "127.0.0.1:8080", "[::1]:8080", ":8080".
Result<ListenAddress> listen_address(const std::string& text);

// Serves the probes there. All addresses are IPv6's and IPv4's, or IPv4's alone on a machine
// without IPv6. `probes` outlives the server.
Result<std::unique_ptr<http::Server>> serve_probes(const ListenAddress& address, Probes& probes);

}  // namespace lockstep
