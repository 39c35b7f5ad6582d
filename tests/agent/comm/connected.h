#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "agent/comm/socket.h"

namespace lockstep::test {

std::vector<std::byte> random_bytes(size_t bytes, uint64_t seed);

// Returns both ends of a TCP connection on this machine. They do not block.
std::pair<comm::UniqueFd, comm::UniqueFd> connected_pair();

}  // namespace lockstep::test
