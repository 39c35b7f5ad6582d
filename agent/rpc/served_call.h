#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/rpc/inbox.h"
#include "agent/rpc/outbox.h"
#include "agent/rpc/server.h"
#include "agent/rpc/shared_memory.h"

namespace lockstep::rpc {

class ServerCore;
struct ServedCall;

// A method as the server has it.
struct ServedMethod {
  const Method* method = nullptr;
  Server::Handler handler;
  MethodOptions options;
};

// A client, with or without a connection. Guarded by the server's mutex.
struct Session {
  uint64_t client = 0;
  std::optional<uint32_t> rank;  // unknown until it connects
  uint64_t connection = 0;       // 0: none
  TimePoint last_seen{};         // while there is none
  uint64_t next_object = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Object>> objects;
  ServedCall* calls = nullptr;  // all of them
};

// How the server will treat a request once it is here.
enum class CallFate {
  kExecute,
  kRefuse,  // with `refusal`
  kRepeat,  // it was begun before: answer when, and as, that one does
};

// A call that a server receives, executes or answers. Guarded by the server's mutex, but for what
// its Request reads. Reused: vectors keep their memory.
struct ServedCall {
  ServerCore* core = nullptr;  // clear() keeps it
  Session* session = nullptr;  // null: it ended
  uint64_t connection = 0;     // that gets the reply
  ServedCall* next = nullptr;  // in the session's list
  ServedCall* before = nullptr;

  uint32_t rank = 0;
  CallId id;
  uint64_t floor = 0;
  uint64_t bytes = 0;  // of the request
  const ServedMethod* method = nullptr;
  std::optional<TimePoint> deadline;
  std::shared_ptr<Object> object;
  CallFate fate = CallFate::kExecute;
  Error refusal;

  InMessage in;
  std::vector<std::byte> head;
  std::unique_ptr<std::byte[]> allocated;
  size_t allocated_bytes = 0;
  std::span<std::byte> body;

  bool is_counted = false;    // in the connection's windows
  bool is_begun = false;      // the memory of calls has it as running
  bool is_receiving = false;  // `in` belongs to the connection's inbox
  bool is_held = false;       // a Request refers to it
  bool is_answered = false;
  bool is_replying = false;  // `out` belongs to the connection, or the client reads what was lent
  std::atomic<bool> is_cancelled{false};

  OutMessage out;
  std::vector<std::byte> copied;  // a small body of the reply
  std::optional<SharedMemory::Word> word;
  SharedMemory* word_of = nullptr;
  std::function<void()> on_free;

  std::span<std::byte> allocate_body(uint64_t body_bytes);
  void clear();
};

}  // namespace lockstep::rpc
