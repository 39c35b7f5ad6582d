#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "agent/rpc/server.h"

namespace lockstep::train {

// Refuses a call that its worker has given up, and returns whether it has. A worker gives up a call
// when another server has answered it. This server may never get the calls of all workers then, and
// nobody is late.
bool refuse_unwanted(rpc::Request& request);

// Returns the workers for which this does not hold, of ranks 0 to `workers` - 1.
std::vector<uint32_t> workers_without(uint32_t workers,
                                      const std::function<bool(uint32_t)>& has_come);

}  // namespace lockstep::train
