#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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
  struct Message;
  struct Peer;
  Control(Options options, UniqueFd stop);
  TimePoint now() const { return options_.clock->now(); }
  void run();
  void beat();
  void take_messages(int rank);
  void handle(int rank, const Message& message);
  void send(Peer& peer, const Message& message);

  Options options_;
  UniqueFd stop_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::thread thread_;
};

}  // namespace lockstep
