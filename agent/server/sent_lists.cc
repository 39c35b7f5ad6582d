#include "agent/server/sent_lists.h"

#include <algorithm>

#include "agent/server/limits.h"

namespace lockstep::server {

bool SentLists::has(uint64_t signature) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(signatures_, signature) != signatures_.end();
}

void SentLists::add(uint64_t signature) {
  const std::lock_guard lock(mutex_);
  std::erase(signatures_, signature);
  signatures_.push_back(signature);
  if (signatures_.size() > kKeyListsMax) signatures_.pop_front();
}

void SentLists::remove(uint64_t signature) {
  const std::lock_guard lock(mutex_);
  std::erase(signatures_, signature);
}

}  // namespace lockstep::server
