#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::integration {

// Forwards TCP connections from a loopback port that the system chose to another port. cut() breaks
// every connection and refuses new ones.
class Relay {
 public:
  // Forwards to 127.0.0.1:`port`.
  explicit Relay(int port);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int port() const { return port_; }
  void cut();
  void mend();  // on the same port

 private:
  struct Pair;
  void listen();

  const int target_port_;
  int port_ = 0;
  int listener_ = -1;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::thread acceptor_;
};

}  // namespace lockstep::integration
