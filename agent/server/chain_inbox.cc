#include "agent/server/chain_inbox.h"

#include <utility>

namespace lockstep::server {

void ChainInbox::begin(const Error& refused) {
  for (auto& [number, message] : waiting_) {
    message.call->request.fail(refused.code, refused.message);
  }
  waiting_.clear();
  next_ = 0;
}

void ChainInbox::add(CopyMessage message) {
  const uint64_t number = message.head.number;
  if (number < next_ || waiting_.contains(number)) {
    message.call->request.fail(
        Code::kInvalid, "[server] message " + std::to_string(number) + " of a chain came twice");
    return;
  }
  waiting_.emplace(number, std::move(message));
}

std::optional<CopyMessage> ChainInbox::next() {
  const auto first = waiting_.find(next_);
  if (first == waiting_.end()) return std::nullopt;
  CopyMessage message = std::move(first->second);
  waiting_.erase(first);
  ++next_;
  return message;
}

}  // namespace lockstep::server
