#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "common/api/servers_view.h"

namespace lockstep::train {

// Reads the views of the servers that an agent sends to its process (round_channel.h), on a thread
// of its own, until it is destroyed or the agent has closed the socket.
class ViewFeed {
 public:
  // Gets views on the feed's thread, each later than the one before.
  using Handler = std::function<void(const ServersView& view)>;
  struct Options {
    int fd = -1;      // WorkerConfig::rounds_fd; -1: no view comes
    ServersView now;  // the view that the process has
    Handler handler;
  };
  explicit ViewFeed(Options options);

 private:
  void run(const std::stop_token& stop);
  void take(const std::string& text);

  Options options_;
  std::jthread thread_;
};

}  // namespace lockstep::train
