#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/http/server.h"

namespace lockstep::monitor {

// Result of a readiness probe.
struct Readiness {
  bool is_ready = false;
  std::string why_not{};
};

struct ProbeSources {
  std::function<Readiness()> readiness;
  std::function<std::string()> metrics;  // in the Prometheus text format
  // Runs the call on the controller's thread. If that thread hangs, no probe is answered, which a
  // liveness probe is meant to detect.
  std::function<void(std::function<void()>)> post;
};

// Serves GET /healthz (the controller's thread runs), /readyz and /metrics, none of which contain
// secrets. /readyz tells whether the caches are filled and the lease is known. It ignores whether
// this replica leads: otherwise a rollout of several replicas could not finish.
class Probes final : public http::Handler {
 public:
  explicit Probes(ProbeSources sources) : sources_(std::move(sources)) {}

  http::Admission authorize(const http::Head& head) const override;
  void handle(http::Request request, Respond respond) override;
  http::Response error(unsigned status, const std::string& message) const override;

 private:
  ProbeSources sources_;
};

struct ListenAddress {
  std::string ip;  // empty: all addresses of this machine
  int port = 0;    // 0: chosen by the system
};
// Parses "127.0.0.1:8080", "[::1]:8080" or ":8080".
Result<ListenAddress> listen_address(const std::string& text);

// Serves the probes at the address. All addresses are those of IPv6 and IPv4, or of IPv4 alone on a
// machine without IPv6. `probes` must outlive the server.
Result<std::unique_ptr<http::Server>> serve_probes(const ListenAddress& address, Probes& probes);

}  // namespace lockstep::monitor
