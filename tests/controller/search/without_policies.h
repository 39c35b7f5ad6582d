#pragma once

#include <string>

#include "controller/loop/executor.h"

namespace lockstep::search {

// A cache for jobs that ask for no NetworkPolicies: nothing is written that it could learn of.
class CacheWithoutPolicies : public loop::CacheUpdater {
 public:
  void network_policy_written(const loop::JobContext&, const loop::SharedJson&) override {}
  void network_policy_gone(const loop::JobContext&, const std::string&,
                           const std::string&) override {}
  void network_policy_outdated(const loop::JobContext&) override {}
  void network_policy_refused(const loop::JobContext&, const std::string&,
                              const std::string&) override {}
  void network_policy_failed(const loop::JobContext&, const std::string&) override {}
};

}  // namespace lockstep::search
