#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/rpc/inbox.h"
#include "agent/rpc/method.h"
#include "agent/rpc/outbox.h"
#include "agent/rpc/shared_memory.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::rpc {

class ServerLink;

// Where a call is on its way.
enum class CallPhase {
  kQueued,    // in its link's queue
  kSending,   // in its link's outbox
  kSent,      // the server will answer it, also if nobody waits any more
  kAnswered,  // or never sent
};

// A call of a client. Guarded by the client's mutex, but for `done` and, once that is set, the
// outcome. Reused: vectors keep their memory.
struct CallState {
  uint64_t number = 0;
  ServerLink* link = nullptr;
  const Method* method = nullptr;
  CallPhase phase = CallPhase::kQueued;
  bool is_held = false;     // a Call refers to it
  bool may_repeat = false;  // it failed without an answer, so the server must not forget it yet
  bool is_cancelled = false;
  bool was_sent = false;    // at least in part, to this server
  bool is_counted = false;  // in the link's windows
  uint64_t request_bytes = 0;
  std::optional<TimePoint> deadline;
  std::function<void()> on_done;
  CallState* next = nullptr;  // in the queue

  std::vector<std::byte> request_head;
  std::vector<Bytes> body;
  OutMessage out;
  std::optional<SharedMemory::Word> word;  // while the body is lent
  SharedMemory* word_of = nullptr;

  std::vector<std::span<std::byte>> into;
  uint64_t reply_bytes_max = 0;
  InMessage in;
  bool is_receiving = false;  // `in` belongs to the inbox

  std::atomic<uint32_t> done{0};
  Status status;
  std::vector<std::byte> head;
  std::unique_ptr<std::byte[]> allocated;
  uint64_t body_bytes = 0;
  uint64_t object = 0;
  uint8_t code = 0;         // of the reply on its way
  bool lent_reply = false;  // likewise

  // Returns memory for body_bytes. A large block is not kept for the next call.
  std::span<std::byte> allocate_body();
  Bytes allocated_body() const { return {allocated.get(), is_allocated ? body_bytes : 0}; }
  size_t allocated_bytes = 0;
  bool is_allocated = false;
  // Resets all but the memory of vectors, and a small block.
  void clear();
};

}  // namespace lockstep::rpc
