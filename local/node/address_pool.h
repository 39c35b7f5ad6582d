#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/base/result.h"

namespace lockstep::local {

// Hands out one address in 127.0.0.0/8 per pod, so that every pod has all ports to itself, as
// in a cluster. Starts at a random address and probes the ports by binding them, so that several
// runs on one machine do not collide. Not thread-safe.
class AddressPool {
 public:
  explicit AddressPool(uint64_t seed);

  // Returns "127.x.y.z", on which all these TCP ports could be bound just now. kUnavailable after a
  // bounded number of tries; it names the port that was taken most often.
  Result<std::string> take(const std::vector<uint16_t>& ports);
  void give_back(const std::string& address) { taken_.erase(address); }

 private:
  Random random_;
  uint32_t next_;  // the low 24 bits of the address
  std::set<std::string> taken_;
};

}  // namespace lockstep::local
