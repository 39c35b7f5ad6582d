#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/comm/handshake.h"
#include "agent/comm/socket.h"
#include "agent/rpc/call_memory.h"
#include "agent/rpc/limits.h"
#include "agent/rpc/method.h"
#include "agent/rpc/shared_memory.h"
#include "common/base/clock.h"
#include "common/base/nonce.h"
#include "common/base/result.h"

namespace lockstep::rpc {

class ClientCore;
class ServerLink;
struct CallState;

// The request of a call, and the place of its reply.
struct CallOptions {
  // Copied; at most kHeadMax bytes.
  Bytes head;
  // Sent from where it is: this memory must stay as it is until the call is done. The list itself
  // is copied.
  std::span<const Bytes> body;
  // Memory for the reply's body, filled in this order; it may be written until the call is done. A
  // longer body fails the call. Empty: the client allocates at most reply_bytes_max.
  std::span<const std::span<std::byte>> into;
  uint64_t reply_bytes_max = uint64_t{64} << 20;
  // From now until the reply; the server gets to know what is left when it receives the call. 0: no
  // limit.
  Duration timeout{};
  uint64_t object = 0;  // of this server (Call::object()); 0: none
  // Runs once, when the call is done, on the client's thread. It must not block.
  std::function<void()> on_done;
};

// A call under way, or its outcome. Move-only; used by one thread at a time. The destructor cancels
// a call that is not done, and waits until its memory is not used any more, which takes moments.
class Call {
 public:
  Call() = default;
  Call(Call&& other) noexcept;
  Call& operator=(Call&& other) noexcept;
  ~Call();

  bool is_done() const;
  // Blocks until the call is done; never call it on the client's thread. Errors, whose message
  // names the server and the method:
  // - the error with which the server answered;
  // - kTimeout: the deadline passed. The server may execute the call, or have done so;
  // - kUnavailable: cancelled; or the server is gone (it ended, was silent for silence_limit, or
  //   could not be reached for reconnect_limit). The call may have been executed. Repeat it, here
  //   or at a replica, with Peer::call_again();
  // - kCorrupt: the server sent garbage; kInvalid: the reply is too long, or the options are wrong.
  Status wait();
  // Makes the call done as soon as possible, and tells the server. From any thread.
  void cancel();

  // Valid once is_done().
  const Status& status() const;
  // Valid if the call succeeded, as long as this object lives.
  Bytes head() const;
  Bytes body() const;           // only what the client allocated
  uint64_t body_bytes() const;  // also with CallOptions::into
  uint64_t object() const;      // that the reply returns; 0: none. See Peer::release().
  CallId id() const;

 private:
  friend class Peer;
  friend class ClientCore;
  Call(std::shared_ptr<ClientCore> core, CallState* state);
  void let_go();

  std::shared_ptr<ClientCore> core_;
  CallState* state_ = nullptr;  // null: empty, or refused
  Status refused_;
};

// A server, as its client sees it. A copyable reference that is valid as long as the Client.
// Thread-safe; no call blocks.
class Peer {
 public:
  Peer() = default;

  // Begins a call. The Method outlives it. Calls beyond the server's windows (limits.h) wait in a
  // queue; beyond queued_calls_max they fail with kUnavailable. Connects if there is no connection,
  // and repeats the call on a new connection if one is lost before the reply. So the server
  // executes it once, or at most once if the call fails (method.h).
  Call call(const Method& method, const CallOptions& options) const;
  // Repeats a call that has failed, here or at another server of the same client, under the same
  // id: a server that knows (or has been told, CallMemory) that it was executed answers as then.
  Call call_again(Call failed, const Method& method, const CallOptions& options) const;
  // Ends the lifetime of an object that a reply has returned.
  void release(uint64_t object) const;
  // Fails all calls to this server with kUnavailable, and ends the connection and the session, with
  // all objects. For a server that a view has left out. Later calls begin anew.
  void leave(std::string_view reason) const;

  // Describes the path for people: "tcp 10.0.1.4 to 10.0.2.7 (eth0), shared memory"; empty if there
  // is no connection.
  std::string path() const;

 private:
  friend class Client;
  Peer(std::shared_ptr<ClientCore> core, ServerLink* link);
  std::shared_ptr<ClientCore> core_;
  ServerLink* link_ = nullptr;
};

class Client;

// While one lives, the client may keep requests back, so that many small ones go out together.
// Short-lived: it spans the calls that somebody begins in a row. The client outlives it.
class RequestBurst {
 public:
  explicit RequestBurst(Client& client);
  ~RequestBurst();
  RequestBurst(const RequestBurst&) = delete;
  RequestBurst& operator=(const RequestBurst&) = delete;

 private:
  ClientCore& core_;
};

// Makes calls to servers (server.h). Owns one thread, which reads replies, keeps deadlines, and
// connects. Requests are written by the thread that calls, as far as the connection takes them.
//
// A failure concerns the calls to one server. Connections are separate from those of the round's
// communicators, with the same handshake and, if the identity says so, the same encryption
// (agent/comm). The first call to a server makes the connection; when it is lost, the client makes
// another one while calls are under way, or objects are alive.
//
// Thread-safe.
class Client {
 public:
  struct Options {
    comm::Identity self;
    Limits limits;
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
    std::function<Digest()> nonce = random_nonce;
    // Memory that servers on this host may read; at most kSegmentsMax.
    std::vector<std::shared_ptr<SharedMemory>> memory;
  };
  // kInvalid for wrong options, kUnavailable if the system refuses or this build cannot encrypt.
  static Result<std::unique_ptr<Client>> create(Options options);
  // Fails all calls that are under way, and tells the servers that the sessions end. Never on the
  // client's own thread, for example in CallOptions::on_done.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  struct ServerAddress {
    uint32_t rank = 0;
    comm::SocketAddress address;
    bool on_this_host = false;  // offer and use shared memory
  };
  // Names a server; connects when it is first called. Lives as long as the client.
  Peer add_server(const ServerAddress& server);

 private:
  friend class RequestBurst;
  explicit Client(std::shared_ptr<ClientCore> core) : core_(std::move(core)) {}
  std::shared_ptr<ClientCore> core_;
};

}  // namespace lockstep::rpc
