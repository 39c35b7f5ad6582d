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

// Hosts with a network of their own. Each is a Linux network namespace with one interface, a TUN
// device. A relay process holds the other ends and carries packets between hosts: after a delay,
// and not at all if they are lost at random or the link is cut. The kernels' TCP deals with that.
class Namespaces {
 public:
  struct Options {
    int hosts = 2;     // at most 64
    Duration delay{};  // of each packet
    double loss = 0;   // share of packets lost at random
    uint64_t seed = 1;
    uint64_t cut_after = 0;  // packets carried before the last host is cut off; 0: never
  };
  // kUnavailable if this process may not make namespaces (needs root and /dev/net/tun).
  static Result<std::unique_ptr<Namespaces>> create(const Options& options);
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  int hosts() const { return static_cast<int>(hosts_.size()); }
  // Numeric, v4.
  static std::string address(int host);
  // Makes the calling thread's sockets on that host from now on.
  Status enter(int host) const;
  // Returns a socket that listens on that host, on a port chosen by the system.
  Result<comm::UniqueFd> listen_on_host(int host) const;

  // Cuts the host off from all others, in both directions, and reconnects it.
  void cut(int host);
  void mend(int host);

  uint64_t carried() const { return counts_->carried; }
  uint64_t lost() const { return counts_->lost; }

 private:
  struct Host {
    comm::UniqueFd space;
    comm::UniqueFd wire;
  };
  struct Counts {  // in memory that the relay shares
    std::atomic<uint64_t> carried;
    std::atomic<uint64_t> lost;
    std::atomic<uint64_t> cut;  // hosts that are cut off, one bit each
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
