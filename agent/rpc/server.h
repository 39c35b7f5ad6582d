#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/comm/handshake.h"
#include "agent/rpc/call_memory.h"
#include "agent/rpc/limits.h"
#include "agent/rpc/method.h"
#include "agent/rpc/shared_memory.h"
#include "common/base/clock.h"
#include "common/base/nonce.h"
#include "common/base/result.h"

namespace lockstep::rpc {

class ServerCore;
struct ServedCall;

// Something of the server's that a client refers to by number. It belongs to the client's session:
// it lives until the client releases it (Peer::release()) or leaves, or until the client has had no
// connection for Limits::lease. Requests that name it keep it alive. Destroyed on the server's
// thread, or by the last such request.
class Object {
 public:
  virtual ~Object() = default;
};

// The reply to a request.
struct Answer {
  Bytes head;  // copied; at most kHeadMax bytes
  // Sent from where it is, unless it has at most kCopiedBodyMax bytes: these are copied. The list
  // is copied, too.
  std::span<const Bytes> body;
  // Runs once, when the memory of the body is not used any more: on any thread, maybe before
  // answer() returns. Without it, the memory outlives the server. It must not block.
  std::function<void()> on_free;
  std::shared_ptr<Object> object;  // the client gets its number; null: none
};

// A call to answer. Move-only. A handler gets it on the server's thread and may answer later, on
// any thread; one thread at a time. If it is destroyed unanswered, the client gets kInternal.
// Outlived by the Server.
class Request {
 public:
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  ~Request();

  uint32_t rank() const;  // of the client, authenticated
  CallId id() const;
  uint64_t floor() const;  // all calls of the client with lower numbers are finished
  // Valid as long as this object. The body is aligned to 16 bytes, or where MethodOptions::place
  // put it.
  Bytes head() const;
  Bytes body() const;
  const std::shared_ptr<Object>& object() const;  // that the call names; null if it names none
  std::optional<TimePoint> deadline() const;
  // False once the client has cancelled the call or is gone. Answer it all the same.
  bool is_wanted() const;

  // Answers, once. The reply of a method that never repeats has at most kRememberedReplyMax bytes;
  // a longer one becomes kInternal. kUnavailable instead of an object beyond objects_max.
  void answer(Answer answer);
  void fail(Code code, std::string_view text);  // at most kErrorTextMax bytes of the text

 private:
  friend class ServerCore;
  explicit Request(ServedCall* call) : call_(call) {}
  void let_go();
  ServedCall* call_;
};

// A request whose body is about to arrive.
struct Arrival {
  uint32_t rank = 0;
  Bytes head;
  uint64_t body_bytes = 0;
};

struct MethodOptions {
  uint64_t body_bytes_max = uint64_t{1} << 30;  // a longer body is refused with kInvalid
  // Returns memory of at least body_bytes bytes for the body, which stays valid as long as the
  // Request and may be written even if no handler runs; or an error, with which the call fails.
  // Called on the server's thread. Without it, the server allocates.
  std::function<Result<std::span<std::byte>>(const Arrival&)> place;
};

class Server;

// While one lives, the server may keep replies back that other threads than its own give, so that
// many small ones go out together. It spans calls that a thread answers in a row. The server
// outlives it.
class ReplyBurst {
 public:
  explicit ReplyBurst(Server& server);
  ~ReplyBurst();
  ReplyBurst(const ReplyBurst&) = delete;
  ReplyBurst& operator=(const ReplyBurst&) = delete;

 private:
  ServerCore& core_;
};

// Serves methods to the clients (client.h) of a round. Owns two threads: one accepts connections
// and authenticates them, one reads requests and runs handlers. A handler must not block: it
// answers later instead.
//
// A connection that breaks the protocol ends, with a warning in the log that names the client's
// rank, the byte of its stream and the reason. Other connections do not notice. Strangers cannot do
// more than connect (agent/comm/inbound.h).
//
// Thread-safe.
class Server {
 public:
  struct Options {
    comm::Identity self;
    int listen_fd = -1;  // a listening socket (comm::listen_on), owned from now on
    Limits limits;
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
    std::function<Digest()> nonce = random_nonce;
    // Memory that clients on this host may read; at most kSegmentsMax. Needs `shares_memory`.
    std::vector<std::shared_ptr<SharedMemory>> memory;
    bool shares_memory = false;  // map the memory that clients offer
  };
  // kInvalid for wrong options, kUnavailable if the system refuses or this build cannot encrypt.
  static Result<std::unique_ptr<Server>> create(Options options);
  // Ends all connections. Requests that are not answered yet have to be destroyed before.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Adds a method; only before start(). The name must be new.
  using Handler = std::function<void(Request)>;
  void add(const Method& method, Handler handler, MethodOptions options = {});
  // Begins to serve. kUnavailable if the system refuses.
  Status start();

  // For replicas: what was executed here or elsewhere, so that calls that clients repeat here are
  // not executed again. A client's part is kept for Limits::lease after it was last heard of.
  // Records the outcome of a call that another server has executed. Errors as CallMemory::begin().
  Status record(CallId id, uint64_t floor, CallOutcome outcome);
  std::string export_calls() const;
  Status import_calls(std::string_view exported);

  struct Counts {
    size_t connections = 0;
    size_t sessions = 0;
    size_t objects = 0;
    size_t calls = 0;                // being received, executed or answered
    size_t refused_connections = 0;  // that broke the protocol
  };
  Counts counts() const;

 private:
  friend class ReplyBurst;
  explicit Server(std::unique_ptr<ServerCore> core);
  std::unique_ptr<ServerCore> core_;
};

}  // namespace lockstep::rpc
