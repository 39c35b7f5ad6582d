#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/rpc/server.h"
#include "agent/server/messages.h"

namespace lockstep::server {

// A worker's call to a unit, checked but for its clock. The request, or `decoded`, owns the memory
// of `values`.
struct UnitCall {
  rpc::Request request;  // the worker's or, at a copy, that of the server before it in the chain
  uint32_t worker = 0;
  CallHead head;
  KeyList keys = nullptr;  // null for a range
  std::span<const float> values = {};
  std::vector<float> decoded = {};
  rpc::Bytes sent = {};  // the values as they arrived

  std::span<const uint64_t> key_span() const {
    return keys == nullptr ? std::span<const uint64_t>() : std::span<const uint64_t>(*keys);
  }
};
// Shared by what waits for it: the log's way along the chain, and the step that adds it up.
using SharedCall = std::shared_ptr<UnitCall>;

}  // namespace lockstep::server
