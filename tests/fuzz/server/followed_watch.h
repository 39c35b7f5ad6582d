#pragma once

#include <map>
#include <string>
#include <utility>

#include "local/store/api.h"

namespace lockstep {

// A client's copy of what a watch is about. CHECKs that each event fits what is known (nothing is
// added twice, nothing changes after it is gone, versions grow), and in the end that the copy is
// what the server lists.
class FollowedWatch {
 public:
  // `target`: that of the request that opened it.
  FollowedWatch(local::Api& api, local::Watch watch, const std::string& target);

  // Reads at most so many events.
  void read(size_t count_max);
  // Reads the rest, and compares.
  void finish();

 private:
  using Key = std::pair<std::string, std::string>;
  static constexpr int64_t kGone = -1;

  void take(const Json& event);
  void compare();

  local::Api& api_;
  local::Watch watch_;
  std::string list_target_;  // with the watch's selectors; "": not known
  const int64_t begin_;      // older objects than this are not known
  int64_t newest_ = 0;
  std::map<Key, int64_t> versions_;  // kGone: deleted
};

}  // namespace lockstep
