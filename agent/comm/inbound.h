#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>

#include "agent/comm/handshake.h"
#include "agent/comm/pending.h"
#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// The connections that others make to this rank while its world forms, or to its server of remote
// calls. Anyone can connect, so there
// are two kinds of places:
// - Connections that have not shown the key hold one of a bounded number of slots. If all are
//   taken, the oldest is evicted, after a last look at what it has sent.
// - A connection whose Hello proves the key is never evicted. Only ranks can make a Hello, and each
//   counts once, so nobody fills these places with overheard ones. A Hello that comes again, or its
//   owner's that comes after a stranger's copy of it, keeps its slot and may prove the rest. The
//   last 65536 Hellos are remembered.
// Either kind ends after handshake_limit. One thread at a time; never blocks.
class Inbound {
 public:
  struct Options {
    const Identity* self = nullptr;  // outlives this
    Serves serves = Serves::kWorld;
    UniqueFd listener;
    size_t ranks = 0;  // of the world
    Duration handshake_limit{};
    std::shared_ptr<const Clock> clock;
    std::function<Digest()> nonce;
    std::function<void(Pending&)> on_made;  // takes a connection that is established
  };
  explicit Inbound(Options options) : options_(std::move(options)) {}

  // -1 if no connection can be accepted now.
  int listener() const { return is_full_ ? -1 : options_.listener.get(); }
  // Calls visit(Pending&) for every connection. They stay where they are until the next call below.
  template <class Visit>
  void for_each(const Visit& visit) {
    for (Pending& pending : proven_) visit(pending);
    for (Pending& pending : strangers_) visit(pending);
  }
  // Advances the connections that are ready, and ends those whose time is over. kConflict as
  // make_communicator().
  Status advance_all();
  // Accepts some of the connections that wait. kUnavailable if there are no descriptors, and no
  // connection here could give one back.
  Status accept_some();

  size_t refusals() const { return refusals_; }
  const std::string& last_refusal() const { return last_refusal_; }

 private:
  using Place = std::list<Pending>::iterator;
  // Advances the connection, and ends it or moves it to where it belongs.
  Status advance_one(std::list<Pending>& list, Place at);
  Status evict_oldest_stranger();
  void refuse(const Pending& pending, const std::string& why);
  bool remember_hello(const Digest& nonce);

  Options options_;
  std::list<Pending> strangers_;        // have not shown the key; the oldest first
  std::list<Pending> proven_;           // have
  std::set<Digest> hellos_;             // the nonces of those that have
  std::deque<Digest> hellos_in_order_;  // the same, the oldest first
  bool is_full_ = false;
  size_t refusals_ = 0;
  std::string last_refusal_;
};

}  // namespace lockstep::comm
