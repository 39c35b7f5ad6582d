#include "agent/server/chain_link.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"

namespace lockstep::server {

void ChainLink::aim(const rpc::Peer& peer, const Fence& fence) {
  peer_ = peer;
  fence_ = fence;
  next_number_ = 0;
  is_broken_ = false;
  std::erase_if(kept_, [&](const Sent& sent) { return !sent.message.is_entry(); });
  states_ = 0;
  for (Sent& sent : kept_) begin(sent);
}

void ChainLink::reset() {
  peer_.reset();
  kept_.clear();
  kept_bytes_ = 0;
  states_ = 0;
}

void ChainLink::send(ChainMessage message) {
  kept_bytes_ += message.entry_bytes();
  if (!message.is_entry()) ++states_;
  kept_.push_back({.message = std::move(message), .call = {}});
  begin(kept_.back());
}

void ChainLink::begin(Sent& sent) {
  CopyHead& head = sent.message.head;
  head.number = next_number_++;
  head.call.fence = fence_;
  const auto notice = [post = options_.post, link = weak_from_this()] {
    post([link] {
      if (const auto alive = link.lock()) alive->collect();
    });
  };
  // Another call of this message ends here.
  sent.call = peer_->call(
      kCopy,
      {.head = std::as_bytes(std::span(&head, 1)), .body = sent.message.body, .on_done = notice});
  if (sent.call.is_done()) notice();
}

void ChainLink::forget_first() {
  const ChainMessage& message = kept_.front().message;
  acknowledged_ = std::max(acknowledged_, message.head.sequence);
  kept_bytes_ -= message.entry_bytes();
  if (!message.is_entry()) --states_;
  kept_.pop_front();
}

// The server answers in the order of the messages.
void ChainLink::collect() {
  bool has_progress = false;
  while (!is_broken_ && !kept_.empty() && kept_.front().call.is_done()) {
    const Status& status = kept_.front().call.status();
    if (!status.ok()) {
      // Either the server is gone or it has another view: the next view says how to go on.
      is_broken_ = true;
      log_warning("a copy does not follow",
                  {{"unit", options_.name}, {"reason", status.error().message}});
      break;
    }
    forget_first();
    has_progress = true;
  }
  if (has_progress) options_.on_progress();
}

}  // namespace lockstep::server
