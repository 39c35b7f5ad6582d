#include "agent/train/servers/waiting_calls.h"

namespace lockstep::train {

bool refuse_unwanted(rpc::Request& request) {
  if (request.is_wanted()) return false;
  request.fail(Code::kUnavailable, "[servers] nobody waits for the call any more");
  return true;
}

std::vector<uint32_t> workers_without(uint32_t workers,
                                      const std::function<bool(uint32_t)>& has_come) {
  std::vector<uint32_t> others;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    if (!has_come(rank)) others.push_back(rank);
  }
  return others;
}

}  // namespace lockstep::train
