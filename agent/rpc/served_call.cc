#include "agent/rpc/served_call.h"

#include "common/base/check.h"

namespace lockstep::rpc {
namespace {

constexpr size_t kKeptBytes = size_t{64} << 10;

}  // namespace

std::span<std::byte> ServedCall::allocate_body(uint64_t body_bytes) {
  if (allocated_bytes < body_bytes) {
    allocated = std::make_unique_for_overwrite<std::byte[]>(body_bytes);
    allocated_bytes = body_bytes;
  }
  return {allocated.get(), body_bytes};
}

void ServedCall::clear() {
  CHECK(!word.has_value() && !is_counted && !is_receiving && !is_held && !is_replying && !on_free);
  if (allocated_bytes > kKeptBytes) {
    allocated.reset();
    allocated_bytes = 0;
  }
  session = nullptr;
  connection = floor = bytes = 0;
  next = before = nullptr;
  id = {};
  method = nullptr;
  deadline.reset();
  object.reset();
  fate = CallFate::kExecute;
  refusal = {};
  in.clear();
  head.clear();
  body = {};
  is_begun = is_answered = false;
  is_cancelled.store(false);
  out.clear();
  copied.clear();
}

}  // namespace lockstep::rpc
