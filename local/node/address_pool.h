#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/base/result.h"

namespace lockstep::local {

// Addresses in 127.0.0.0/8, one for each pod, so that a port means there what it means in a
// cluster. Begins at a random place and tries the ports by binding them, so that several runs on
// one machine keep out of each other's way. Not thread-safe.
class AddressPool {
 public:
  explicit AddressPool(uint64_t seed);

  // "127.x.y.z", on which all these TCP ports could be bound just now. kUnavailable after a bounded
  // number of tries, naming the port that stood in the way.
  Result<std::string> take(const std::vector<uint16_t>& ports);
  void give_back(const std::string& address) { taken_.erase(address); }

 private:
  Random random_;
  uint32_t next_;  // the low 24 bits of the address
  std::set<std::string> taken_;
};

}  // namespace lockstep::local
