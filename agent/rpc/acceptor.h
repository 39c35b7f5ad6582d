#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "agent/comm/handshake.h"
#include "agent/comm/inbound.h"
#include "agent/comm/records.h"
#include "agent/comm/socket.h"
#include "common/base/clock.h"

namespace lockstep::rpc {

// A connection whose client has proved itself.
struct Admitted {
  uint32_t rank = 0;
  std::string from;  // its address
  comm::UniqueFd fd;
  comm::SessionSecrets secrets;
};

// Accepts connections and shakes hands, on a thread of its own, so that strangers do not slow down
// the server's.
class Acceptor {
 public:
  struct Options {
    const comm::Identity* self = nullptr;  // outlives this
    comm::UniqueFd listener;
    Duration handshake_limit{};
    std::shared_ptr<const Clock> clock;
    std::function<Digest()> nonce;
    std::function<void(Admitted)> admit;  // on this thread
  };
  static Result<std::unique_ptr<Acceptor>> start(Options options);
  ~Acceptor();

 private:
  Acceptor(Options options, comm::UniqueFd event);
  void run();
  void wait();

  std::shared_ptr<const Clock> clock_;
  comm::UniqueFd event_;
  comm::Inbound inbound_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace lockstep::rpc
