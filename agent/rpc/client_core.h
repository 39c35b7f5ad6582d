#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/rpc/call_state.h"
#include "agent/rpc/client.h"
#include "agent/rpc/poller.h"
#include "agent/rpc/server_link.h"

namespace lockstep::rpc {

// The state of a Client, which its Calls and Peers share. Functions marked (locked) need `mutex`.
class ClientCore {
 public:
  ClientCore(Client::Options options, Poller poller);
  ~ClientCore();

  void run();
  // Ends the thread, and fails all calls. Later calls fail.
  void stop();
  ServerLink* add_server(const Client::ServerAddress& server);

  // Begins a call; `number` is 0 for a new one. Null if it was refused: then `refused` says why.
  CallState* begin(ServerLink& link, const Method& method, const CallOptions& options,
                   uint64_t number, Status& refused);
  void cancel(CallState& call);
  void begin_burst();
  void end_burst();
  // The Call that refers to the state is gone.
  void let_go(CallState& call);
  // Takes the number from a failed call, for one that repeats it.
  uint64_t take_number(CallState& call);

  // (locked) Makes the call done for its owner. Its memory is not used afterwards.
  void complete(CallState& call, Status status, bool may_repeat);
  // (locked) The server will not answer the call any more.
  void settle(CallState& call);
  // (locked) The unfinished call of this number; null if there is none.
  CallState* find(uint64_t number) const;
  template <class Visit>
  void for_each_unfinished(const Visit& visit) {
    for (uint64_t number = floor_; number < next_; ++number) {
      CallState* const call = calls_[number % kUnfinishedMax];
      if (call != nullptr) visit(*call);
    }
  }
  uint64_t floor() const { return floor_; }
  uint64_t next() const { return next_; }
  // (locked)
  bool is_in_burst() const { return bursts_ > 0; }
  bool is_loop() const { return std::this_thread::get_id() == loop_id_; }
  TimePoint now() const { return options_.clock->now(); }
  void wake() { poller_.wake(); }
  // (loop, locked) Makes the loop look at all links once more before it waits.
  void tick_again() { wakes_at_ = TimePoint{}; }
  Poller& poller() { return poller_; }
  const Client::Options& options() const { return options_; }
  uint64_t client() const { return client_; }

  std::mutex mutex;

 private:
  CallState* take_state();
  void recycle(CallState& call);
  void free_number(CallState& call);
  void cancel_now(CallState& call);
  void expire(TimePoint now);
  void tick();
  void run_callbacks();
  void run_once();

  Client::Options options_;
  Poller poller_;
  uint64_t client_;
  std::atomic<std::thread::id> loop_id_{};
  std::thread thread_;
  bool stops_ = false;

  std::vector<std::unique_ptr<ServerLink>> links_;
  std::deque<CallState> states_;  // all that there are
  std::vector<CallState*> free_states_;
  std::array<CallState*, kUnfinishedMax> calls_{};  // unfinished, by number
  uint64_t next_ = 1;
  uint64_t floor_ = 1;
  TimePoint next_deadline_ = TimePoint::max();  // no deadline is earlier
  TimePoint wakes_at_{};                        // the loop, at the latest
  std::vector<CallState*> cancelled_;           // for the loop
  std::vector<std::function<void()>> callbacks_;
  size_t bursts_ = 0;
};

}  // namespace lockstep::rpc
