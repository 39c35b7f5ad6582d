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
#include "agent/comm/fault.h"
#include "agent/comm/socket.h"
#include "common/api/collective_board.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep {

// The connections, one to every other rank, that carry no payload: they tell at once when a rank
// ends (the kernel closes them), aborts or leaves in peace, bring its heartbeats, and ring the bell
// for a rank that waits in poll. One thread reads them; any thread may send.
class Control {
 public:
  // What heartbeats tell of a rank.
  struct Pulse {
    uint64_t entered = 0;    // the last collective of the world
    AwaitedRanks waits_for;  // where its program stands still
  };
  struct Options {
    std::vector<UniqueFd> peers;  // by rank of the world; this rank's own is empty
    Duration heartbeat = std::chrono::seconds(1);
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
    // Called on the control thread.
    std::function<void(const Fault&)> on_fault;
    std::function<void()> on_wake;  // a bell rang, or a rank left
    std::function<Pulse()> before_beat;
  };
  static Result<std::unique_ptr<Control>> create(Options options);
  // So long what was said last may take to arrive where a rank leaves: long enough for the kernel
  // to send it once more (200 ms, the least that Linux waits with it), and again.
  static constexpr Duration kLeavingLimit = std::chrono::milliseconds(500);
  // Starts the thread. Once.
  void start();
  // Closes the connections, which the others take for the end of this process if nothing was said.
  // Waits for a moment until they have what was said.
  ~Control();

  // Tells all that this rank leaves in peace.
  void say_bye();
  void announce(const Fault& fault);
  void ring(int rank);
  // It has said that it leaves.
  bool left(int rank) const;

  struct Health {
    Duration silent{};  // since it was last heard of
    Pulse pulse;        // as of then
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

}  // namespace lockstep
