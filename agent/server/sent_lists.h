#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

namespace lockstep::server {

// The signatures of the key lists that a server has taken lately and so probably knows.
// Thread-safe.
class SentLists {
 public:
  bool has(uint64_t signature) const;
  void add(uint64_t signature);
  void remove(uint64_t signature);

 private:
  mutable std::mutex mutex_;
  std::deque<uint64_t> signatures_;  // the latest at the end; at most kKeyListsMax (limits.h)
};

}  // namespace lockstep::server
