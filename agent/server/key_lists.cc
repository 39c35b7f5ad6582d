#include "agent/server/key_lists.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/server/limits.h"

namespace lockstep::server {

KeyList KeyLists::find(uint64_t signature, uint64_t key_count) {
  const auto found = std::ranges::find(entries_, signature, &Entry::signature);
  if (found == entries_.end() || found->keys->size() != key_count) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->keys;
}

void KeyLists::forget(const KeyList& keys) {
  keys_ -= keys->size();
  forgotten_.push_back(keys);
}

Status KeyLists::add(uint64_t signature, KeyList keys) {
  std::erase_if(forgotten_, [](const auto& list) { return list.expired(); });
  uint64_t kept = 0;
  for (const auto& list : forgotten_) {
    if (const KeyList alive = list.lock()) kept += alive->size();
  }
  if (kept > kListedKeysMax) {
    return unavailable("[server] calls that wait keep lists of " + std::to_string(kept) +
                       " keys, expected at most " + std::to_string(kListedKeysMax));
  }
  const auto known = std::ranges::find(entries_, signature, &Entry::signature);
  if (known != entries_.end()) {
    forget(known->keys);
    entries_.erase(known);
  }
  keys_ += keys->size();
  entries_.push_front({signature, std::move(keys)});
  while (entries_.size() > kKeyListsMax || (entries_.size() > 1 && keys_ > kListedKeysMax)) {
    forget(entries_.back().keys);
    entries_.pop_back();
  }
  return {};
}

}  // namespace lockstep::server
