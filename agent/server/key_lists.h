#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "agent/server/messages.h"

namespace lockstep::server {

// The key lists that one worker has sent, by signature: the kKeyListsMax most recently used ones,
// or fewer, which have kListedKeysMax keys together (limits.h). Calls that wait may keep lists that
// are forgotten here; these have at most as many keys again. A wrong signature harms only the
// worker that sent it. Single-threaded.
class KeyLists {
 public:
  // Returns null if there is no list with this signature and size.
  KeyList find(uint64_t signature, uint64_t key_count);
  // kUnavailable, with nothing changed, if calls keep too many forgotten lists.
  Status add(uint64_t signature, KeyList keys);

 private:
  void forget(const KeyList& keys);
  struct Entry {
    uint64_t signature = 0;
    KeyList keys;
  };
  std::list<Entry> entries_;  // the most recently used first
  uint64_t keys_ = 0;         // of all
  std::vector<std::weak_ptr<const std::vector<uint64_t>>> forgotten_;  // maybe kept by calls
};

}  // namespace lockstep::server
