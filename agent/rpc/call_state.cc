#include "agent/rpc/call_state.h"

#include "common/base/check.h"

namespace lockstep::rpc {
namespace {

constexpr size_t kKeptBytes = size_t{64} << 10;

}  // namespace

std::span<std::byte> CallState::allocate_body() {
  if (allocated_bytes < body_bytes) {
    allocated = std::make_unique_for_overwrite<std::byte[]>(body_bytes);
    allocated_bytes = body_bytes;
  }
  is_allocated = true;
  return {allocated.get(), body_bytes};
}

void CallState::clear() {
  CHECK(!word.has_value() && !is_receiving && !out.is_queued);
  if (allocated_bytes > kKeptBytes) {
    allocated.reset();
    allocated_bytes = 0;
  }
  number = request_bytes = reply_bytes_max = body_bytes = object = 0;
  link = nullptr;
  method = nullptr;
  phase = CallPhase::kQueued;
  is_held = may_repeat = is_cancelled = was_sent = is_counted = is_allocated = lent_reply = false;
  deadline.reset();
  on_done = nullptr;
  next = nullptr;
  request_head.clear();
  body.clear();
  out.clear();
  into.clear();
  in.clear();
  done.store(0);
  status = {};
  head.clear();
  code = 0;
}

}  // namespace lockstep::rpc
