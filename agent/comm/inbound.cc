#include "agent/comm/inbound.h"

#include <iterator>
#include <utility>

#include "common/base/log.h"

namespace lockstep::comm {
namespace {

constexpr size_t kRefusalsLogged = 5;
// At 20,000 connections of strangers a second, an honest one has 6 ms to deliver its Hello. The
// kernel has usually received it before we accept.
constexpr size_t kStrangerSlots = 128;
// In addition, for ranks that all connect at the same time.
constexpr size_t kSlotsPerRank = 2;
// Connections accepted in a row, so that the others are served too.
constexpr size_t kBurst = 64;
// Several from each rank of the largest worlds. A server of remote calls runs as long as its round.
constexpr size_t kHellosRemembered = 65536;

}  // namespace

Status Inbound::advance_one(std::list<Pending>& list, Place at) {
  const auto advanced = advance(*at);
  const bool waits = advanced.ok() && *advanced == Advance::kWaiting;
  const bool in_time = options_.clock->now() < at->until;
  if (waits && in_time && (&list == &proven_ || !at->handshake.has_shown_key())) return {};
  if (!advanced.ok() && advanced.error().code == Code::kConflict) {
    return conflict("[comm] forming: " + advanced.error().message, Blame::kPeer);
  }
  if (waits && in_time) {
    const bool is_first = remember_hello(at->handshake.peer_nonce());
    if (is_first) proven_.splice(proven_.end(), list, at);
    return {};
  }
  if (!advanced.ok()) {
    refuse(*at, advanced.error().message);
  } else if (waits) {
    refuse(*at, "handshake timed out");
  } else {
    options_.on_made(*at);
  }
  list.erase(at);
  is_full_ = false;
  return {};
}

// Returns whether the Hello is new.
bool Inbound::remember_hello(const Digest& nonce) {
  if (!hellos_.insert(nonce).second) return false;
  hellos_in_order_.push_back(nonce);
  if (hellos_in_order_.size() > kHellosRemembered) {
    hellos_.erase(hellos_in_order_.front());
    hellos_in_order_.pop_front();
  }
  return true;
}

Status Inbound::advance_all() {
  for (std::list<Pending>* list : {&proven_, &strangers_}) {
    for (Place at = list->begin(); at != list->end();) TRY(advance_one(*list, at++));
  }
  return {};
}

Status Inbound::evict_oldest_stranger() {
  const Place oldest = strangers_.begin();
  oldest->ready = true;
  const size_t before = strangers_.size();
  TRY(advance_one(strangers_, oldest));
  if (strangers_.size() < before) return {};
  refuse(*oldest, "evicted by later connections");
  strangers_.erase(oldest);
  return {};
}

Status Inbound::accept_some() {
  for (size_t taken = 0; taken < kBurst; ++taken) {
    auto accepted = accept_one(options_.listener.get());
    if (!accepted.ok() && !strangers_.empty()) {
      // They may hold the descriptors.
      TRY(evict_oldest_stranger());
      continue;
    }
    is_full_ = !accepted.ok() && !proven_.empty();
    if (is_full_) return {};
    if (!accepted.ok()) return accepted.error();
    if (!accepted->fd) return {};
    tune_stream(accepted->fd.get());
    const Digest nonce = options_.nonce();
    strangers_.push_back({.fd = std::move(accepted->fd),
                          .from = accepted->from,
                          .handshake = Handshake::server(*options_.self, nonce, options_.serves),
                          .until = options_.clock->now() + options_.handshake_limit,
                          .ready = true});
    TRY(advance_one(strangers_, std::prev(strangers_.end())));
    if (strangers_.size() > kStrangerSlots + kSlotsPerRank * options_.ranks)
      TRY(evict_oldest_stranger());
  }
  return {};
}

void Inbound::refuse(const Pending& pending, const std::string& why) {
  last_refusal_ = why + " from " + pending.from;
  if (++refusals_ > kRefusalsLogged) return;
  log_warning("comm refused a connection",
              {{"rank", options_.self->rank}, {"from", pending.from}, {"why", why}});
}

}  // namespace lockstep::comm
