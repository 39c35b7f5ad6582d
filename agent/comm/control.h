#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "agent/comm/control_message.h"
#include "agent/comm/control_wire.h"
#include "agent/comm/fault.h"
#include "agent/comm/socket.h"
#include "common/api/collective_board.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// The connections to every other rank that carry no payload. They report immediately when a rank
// ends (the kernel closes them), aborts or leaves cleanly. They also carry its heartbeats, and ring
// the bell of a rank that waits in poll. One thread reads them; any thread may send.
class Control {
 public:
  // State of a rank that its heartbeats carry.
  struct Pulse {
    uint64_t entered = 0;    // the last collective of the world that it entered
    AwaitedRanks waits_for;  // ranks that its program is blocked on
  };
  struct Options {
    std::vector<UniqueFd> peers;  // by rank of the world; this rank's own is empty
    // Likewise; null, or none at all: plain. They use the descriptors in `peers`.
    std::vector<std::unique_ptr<ControlWire>> wires;
    Duration heartbeat = std::chrono::seconds(1);
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
    // Called on the control thread.
    std::function<void(const Fault&)> on_fault;
    std::function<void()> on_wake;  // a bell rang, or a rank left
    std::function<Pulse()> before_beat;
  };
  static Result<std::unique_ptr<Control>> create(Options options);
  // How long the last messages may take to arrive when a rank leaves: enough for the kernel to
  // retransmit (after 200 ms, the minimum on Linux) and to do so again.
  static constexpr Duration kLeavingLimit = std::chrono::milliseconds(500);
  // Starts the thread. Call it once.
  void start();
  // Closes the connections. Without an earlier message, the others take that for the end of this
  // process. First waits, for at most kLeavingLimit, until they have received all messages.
  ~Control();

  // Tells all ranks that this rank leaves cleanly.
  void say_bye();
  void announce(const Fault& fault);
  void ring(int rank);
  // Whether the rank has said that it leaves.
  bool said_goodbye(int rank) const;

  struct Health {
    Duration silent{};  // time since its last message
    Pulse pulse;        // as of that message
  };
  Health health(int rank) const;
  Duration heartbeat() const { return options_.heartbeat; }

 private:
  struct Peer;
  Control(Options options, UniqueFd stop);
  TimePoint now() const { return options_.clock->now(); }
  void run();
  void beat();
  Status watch_all();
  void take_messages(int rank);
  void report(int rank, const Error& error);
  void handle(Peer& peer, const ControlMessage& message);
  void end_if_closed(int rank);
  void send_all(const ControlMessage& message);
  static void send(Peer& peer, std::span<const std::byte> message);

  Options options_;
  UniqueFd stop_;
  UniqueFd epoll_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::thread thread_;
};

}  // namespace lockstep::comm
