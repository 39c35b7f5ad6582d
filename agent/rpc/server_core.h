#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "agent/rpc/acceptor.h"
#include "agent/rpc/call_memory.h"
#include "agent/rpc/client_link.h"
#include "agent/rpc/poller.h"
#include "agent/rpc/served_call.h"
#include "agent/rpc/server.h"

namespace lockstep::rpc {

// The state of a Server. Functions marked (locked) need `mutex`; those marked (loop) run on the
// server's thread alone.
class ServerCore {
 public:
  ServerCore(Server::Options options, Poller poller);
  ~ServerCore();

  void add(const Method& method, Server::Handler handler, MethodOptions options);
  Status start();
  Status record(CallId id, uint64_t floor, CallOutcome outcome);
  std::string export_calls() const;
  Status import_calls(std::string_view exported);
  Server::Counts counts() const;

  // For Request.
  void answer(ServedCall& call, Answer answer);
  void fail(ServedCall& call, Code code, std::string_view text);
  void let_go(ServedCall& call);

  // (locked)
  const ServedMethod* method(uint64_t id) const;
  ServedCall& begin_call(Session& session, uint64_t connection);
  ServedCall* find_call(const Session& session, uint64_t number) const;
  // (loop) Does with a request that is here what its fate says.
  void execute(ServedCall& call);
  // (locked) Nothing will be done with the call, and no reply is sent.
  void abandon(ServedCall& call);
  // (locked) The reply was sent, and taken if it was lent.
  void replied(ServedCall& call);
  // (loop, locked) Begins or resumes the client's session for the connection. Returns its state for
  // the answer (Opening::session), and the session if there is one. kConflict: the number is
  // another rank's.
  struct Opened {
    uint32_t state = 0;
    Session* session = nullptr;
  };
  Result<Opened> open_session(const ClientLink& link, uint32_t rank, const Opening& opening);
  void release_object(Session& session, uint64_t object);

  void begin_burst();
  void end_burst();

  CallMemory& memory() { return memory_; }
  TimePoint now() const { return options_.clock->now(); }
  const Server::Options& options() const { return options_; }
  Poller& poller() { return poller_; }
  void wake() { poller_.wake(); }
  bool is_loop() const { return std::this_thread::get_id() == loop_id_; }

  mutable std::mutex mutex;

 private:
  void run_once();
  void tick();
  void adopt();
  void end_connection(uint64_t number, const Status& why);
  void end_session(Session& session);
  void detach_calls(Session& session, uint64_t connection);
  bool make_room(std::optional<uint32_t> rank);
  Session* touch_session(uint64_t client);
  void expire_sessions(TimePoint now);
  ClientLink* connection(uint64_t number) const;
  Status prepare_reply(ServedCall& call, const Answer& answer);
  void send_reply(ServedCall& call, Answer& answer, std::function<void()>& freed);
  void reply_error(ServedCall& call, Code code, std::string_view text);
  void send_outcome(ServedCall& call, const CallOutcome& outcome);
  void remember(ServedCall& call, CallOutcome outcome);
  void unlink(ServedCall& call);
  void recycle_if_over(ServedCall& call);
  void send_out(ClientLink& link);
  void send_kept();
  void run_deferred();

  Server::Options options_;
  Poller poller_;
  std::unordered_map<uint64_t, ServedMethod> methods_;
  CallMemory memory_;
  std::atomic<std::thread::id> loop_id_{};
  std::thread thread_;
  bool stops_ = false;

  std::vector<Admitted> admitted_;  // from the acceptor
  uint64_t next_connection_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<ClientLink>> connections_;
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;  // by client
  std::deque<ServedCall> states_;
  std::vector<ServedCall*> free_states_;
  std::vector<uint64_t> dirty_;  // connections to flush
  std::vector<uint64_t> kept_;   // likewise, at the end of all bursts
  TimePoint kept_since_{};       // the oldest of these replies
  size_t bursts_ = 0;
  std::vector<std::shared_ptr<Object>> garbage_;  // destroyed without the lock
  std::vector<std::function<void()>> deferred_;   // run without it
  size_t refused_ = 0;
  TimePoint wakes_at_{};
  TimePoint next_expiry_{};
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace lockstep::rpc
