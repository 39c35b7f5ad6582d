#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::test {

// Hosts of a network of their own: each is a network namespace of Linux, with one interface (a TUN
// device) whose other end is held by a relay, a thread of this process, which carries the packets
// from host to host: later by the delay, and not at all by chance or where a link is cut. What TCP
// does about that, the kernels do.
class Namespaces {
 public:
  struct Options {
    int hosts = 2;
    Duration delay{};  // of each packet
    double loss = 0;   // of packets, by chance
    uint64_t seed = 1;
  };
  // kUnavailable where this process may make no namespaces (it needs root and /dev/net/tun).
  static Result<std::unique_ptr<Namespaces>> create(const Options& options);
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  int hosts() const { return static_cast<int>(hosts_.size()); }
  // Numeric, v4.
  static std::string address(int host);
  // From now on the calling thread's sockets are made on that host.
  Status enter(int host) const;
  // A socket that listens on that host, on a port of the system's choice.
  Result<UniqueFd> listen_on_host(int host) const;

  // From all others, in both directions.
  void cut(int host);
  void mend(int host);

  uint64_t carried() const { return carried_; }
  uint64_t lost() const { return lost_; }

 private:
  struct Host {
    UniqueFd space;
    UniqueFd wire;
    std::atomic<bool> cut{false};
  };
  class Relay;
  explicit Namespaces(const Options& options);
  static Result<std::unique_ptr<Host>> make_host(int host);

  Options options_;
  std::vector<std::unique_ptr<Host>> hosts_;
  UniqueFd stop_;
  std::atomic<uint64_t> carried_{0};
  std::atomic<uint64_t> lost_{0};
  std::thread relay_;
};

}  // namespace lockstep::test
