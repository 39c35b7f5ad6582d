#pragma once

#include <map>
#include <string>
#include <utility>

#include "local/store/api.h"

namespace lockstep::fuzz {

// A client's copy of the objects that a watch covers. CHECKs that each event fits the copy (nothing
// is added twice, nothing changes after it is gone, versions grow) and that in the end the copy
// equals the server's list.
class FollowedWatch {
 public:
  // `target` is that of the request that opened the watch.
  FollowedWatch(local::Api& api, local::Watch watch, const std::string& target);

  // Reads at most `count_max` events.
  void read(size_t count_max);
  // Reads the rest, and compares the copy with the list.
  void finish();

 private:
  using Key = std::pair<std::string, std::string>;
  static constexpr int64_t kGone = -1;

  void take(const Json& event);
  void compare();

  local::Api& api_;
  local::Watch watch_;
  std::string list_target_;  // with the watch's selectors; "": unknown
  const int64_t begin_;      // older objects are unknown
  int64_t newest_ = 0;
  std::map<Key, int64_t> versions_;  // kGone: deleted
};

}  // namespace lockstep::fuzz
