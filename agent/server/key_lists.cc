#include "agent/server/key_lists.h"

#include <algorithm>
#include <utility>

#include "agent/server/limits.h"

namespace lockstep::server {

KeyList KeyLists::find(uint64_t signature, uint64_t key_count) {
  const auto found = std::ranges::find(entries_, signature, &Entry::signature);
  if (found == entries_.end() || found->keys->size() != key_count) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->keys;
}

void KeyLists::add(uint64_t signature, KeyList keys) {
  const auto known = std::ranges::find(entries_, signature, &Entry::signature);
  if (known != entries_.end()) {
    keys_ -= known->keys->size();
    entries_.erase(known);
  }
  keys_ += keys->size();
  entries_.push_front({signature, std::move(keys)});
  while (entries_.size() > kKeyListsMax || (entries_.size() > 1 && keys_ > kListedKeysMax)) {
    keys_ -= entries_.back().keys->size();
    entries_.pop_back();
  }
}

}  // namespace lockstep::server
