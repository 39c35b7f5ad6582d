#pragma once

#include <chrono>
#include <map>
#include <string>

#include "common/base/clock.h"

namespace lockstep::loop {

// Pods that the API server accepted in a recent check, by their digest (CheckPod::template_digest).
// If many similar jobs are created together, only the first few are checked. If rules, webhooks or
// accounts change meanwhile, creating the pods shows it, just as it does after a check.
class AcceptedPodCache {
 public:
  void add(const std::string& template_digest, TimePoint now) {
    std::erase_if(until_, [now](const auto& each) { return each.second <= now; });
    if (until_.size() < kMax) until_[template_digest] = now + kLifetime;
  }
  bool has(const std::string& template_digest, TimePoint now) const {
    const auto found = until_.find(template_digest);
    return found != until_.end() && now < found->second;
  }

 private:
  static constexpr size_t kMax = 1000;
  static constexpr std::chrono::seconds kLifetime{60};

  std::map<std::string, TimePoint> until_;
};

}  // namespace lockstep::loop
