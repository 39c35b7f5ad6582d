#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::test {

// Hosts of a network of their own: each is a network namespace of Linux, with one interface (a TUN
// device) whose other end is held by a relay, a process of its own, which carries the packets from
// host to host: later by the delay, and not at all by chance or where a link is cut. What TCP does
// about that, the kernels do.
class Namespaces {
 public:
  struct Options {
    int hosts = 2;     // at most 64
    Duration delay{};  // of each packet
    double loss = 0;   // of packets, by chance
    uint64_t seed = 1;
    uint64_t cut_after = 0;  // packets carried: then the last host is cut off; 0: never
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

  uint64_t carried() const { return counts_->carried; }
  uint64_t lost() const { return counts_->lost; }

 private:
  struct Host {
    UniqueFd space;
    UniqueFd wire;
  };
  struct Counts {  // in memory that the relay shares
    std::atomic<uint64_t> carried;
    std::atomic<uint64_t> lost;
    std::atomic<uint64_t> cut;  // hosts, one bit each
  };
  class Relay;
  explicit Namespaces(const Options& options);
  static Result<Host> make_host(int host);

  Options options_;
  std::vector<Host> hosts_;
  Counts* counts_;
  pid_t relay_ = -1;
};

}  // namespace lockstep::test
