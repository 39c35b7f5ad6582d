#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "agent/server/messages.h"

namespace lockstep::server {

// The key lists that one worker has sent, by signature: the kKeyListsMax most recently used ones,
// or fewer, which have kListedKeysMax keys together (limits.h). A wrong signature harms only the
// worker that sent it. Single-threaded.
class KeyLists {
 public:
  // Returns null if there is no list with this signature and size.
  KeyList find(uint64_t signature, uint64_t key_count);
  void add(uint64_t signature, KeyList keys);

 private:
  struct Entry {
    uint64_t signature = 0;
    KeyList keys;
  };
  std::list<Entry> entries_;  // the most recently used first
  uint64_t keys_ = 0;         // of all
};

}  // namespace lockstep::server
