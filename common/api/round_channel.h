#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/result.h"

namespace lockstep {

// The socket between an agent and a lockstep-worker that may outlive its round. A worker whose
// peers are gone tears down everything of the round, tells its agent (LeftRound), and waits. The
// agent answers with the next round (NextRound), or kills it. A pair of Unix sockets that keep
// messages apart (SOCK_SEQPACKET); the worker inherits its end by number.

// Worker to agent.
struct LeftRound {
  int64_t round = 0;
  int64_t exit_code = 0;  // that the process would have ended with

  bool operator==(const LeftRound&) const = default;
};

// Agent to worker.
struct NextRound {
  std::string config_path;  // of the WorkerConfig, whose shm_fd does not count
  int shm_fd = -1;          // the receiver owns it; -1: none
};

// Returns the agent's end and the worker's end, both close-on-exec. Reading from the agent's end
// does not block.
Result<std::array<int, 2>> make_round_channel();

// Gives a process the newest view of the servers (servers_view.h), in a round with servers; its
// processes never get a NextRound. Returns false if there is no room now.
Result<bool> send_view(int fd, const std::string& text);
// As receive_next(), for a view's text.
Result<std::optional<std::string>> receive_view(int fd, int wait_ms);

Status send_left(int fd, const LeftRound& left);
// Returns nothing if there is no such message yet.
std::optional<LeftRound> receive_left(int fd);

Status send_next(int fd, const NextRound& next);
// Waits at most until `wait_ms` are over or a signal arrives. Returns nothing if no message has
// come by then. kUnavailable if the other end is closed; kInvalid for any other message.
Result<std::optional<NextRound>> receive_next(int fd, int wait_ms);

}  // namespace lockstep
