#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/server/messages.h"

namespace lockstep::server {

// A message to the next server of a chain.
struct ChainMessage {
  CopyHead head;  // but for its number and view, which the link fills in
  std::vector<rpc::Bytes> body;
  std::shared_ptr<const void> owner;  // of the body's memory

  bool is_entry() const { return head.kind < CopyKind::kBegin; }
  uint64_t entry_bytes() const { return is_entry() ? rpc::bytes_in(body) : 0; }
};

// A unit's way to the next server of its chain. Messages are sent at once, many are under way, and
// each is kept until the server has acknowledged it, i.e. until it and all servers after it have
// the entry. A later view may aim the link at another server, which gets what is not acknowledged;
// it drops entries that it has. What a link keeps is bounded by the windows of the calls that
// brought the entries here (agent/rpc/limits.h), since these are not answered before.
//
// Used on the unit's thread only.
class ChainLink : public std::enable_shared_from_this<ChainLink> {
 public:
  struct Options {
    std::string name;  // of the unit
    // Runs a task on the unit's thread, later; from any thread.
    std::function<void(std::function<void()>)> post;
    std::function<void()> on_progress;  // there: more is acknowledged
  };
  explicit ChainLink(Options options) : options_(std::move(options)) {}

  // Goes on with this server in this view: repeats what is not acknowledged.
  void aim(const rpc::Peer& peer, const Fence& fence);
  // There is no next server, or one that begins with nothing: forgets what is kept.
  void reset();

  void send(ChainMessage message);
  // The last entry that the server has.
  uint64_t acknowledged() const { return acknowledged_; }
  // Bytes of the entries that are not acknowledged.
  uint64_t kept_bytes() const { return kept_bytes_; }
  // Whether messages that are no entries are under way.
  bool sends_state() const { return states_ > 0; }

 private:
  struct Sent {
    ChainMessage message;
    rpc::Call call;
  };
  void begin(Sent& sent);
  void collect();
  void forget_first();

  Options options_;
  std::optional<rpc::Peer> peer_;
  Fence fence_;
  uint64_t next_number_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t kept_bytes_ = 0;  // of entries
  size_t states_ = 0;
  bool is_broken_ = false;  // until a view aims it anew
  std::deque<Sent> kept_;
};

}  // namespace lockstep::server
