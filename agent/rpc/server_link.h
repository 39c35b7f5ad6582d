#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/comm/link.h"
#include "agent/comm/pending.h"
#include "agent/rpc/call_state.h"
#include "agent/rpc/client.h"
#include "agent/rpc/inbox.h"
#include "agent/rpc/outbox.h"

namespace lockstep::rpc {

class ClientCore;

// A client's connection to one server, made again when it is lost, and the calls that go there.
// Functions marked (locked) need the client's mutex. Those marked (loop) run on the client's thread
// alone; the others on any.
class ServerLink final : public FrameSink {
 public:
  ServerLink(ClientCore& core, uint64_t tag, Client::ServerAddress server);

  // (locked) Queues the call, and sends what the windows allow, if no burst keeps it.
  void enqueue(CallState& call);
  // (locked) Sends what a burst has kept.
  void send_kept();
  // (locked) Takes the call out of whatever it is in. Returns false if the server will still answer
  // it.
  bool withdraw(CallState& call);
  // (locked)
  void release_object(uint64_t object);
  void request_leave(std::string reason) { leave_reason_ = std::move(reason); }
  std::string path() const;
  size_t queued() const { return queued_; }

  // (loop, locked) Dials, pings, gives up. Returns when it wants to be called again at the latest.
  TimePoint tick(TimePoint now);
  // (loop)
  void on_event(bool readable, bool writable);
  // (loop, locked) Says goodbye; for the end of the client.
  void finish();
  // Whether on_event() has work without an event.
  bool has_work() const { return has_more_ || inbox_.copies(); }
  // (locked) The server's window has room again.
  void uncount(CallState& call);
  // (locked) The call's number goes to another state; the server may still answer this one.
  void orphan(CallState& call) { orphans_.push_back(&call); }

  // FrameSink (loop)
  Status on_control(const FrameHeader& header, Bytes payload) override;
  Result<InMessage*> on_message(const FrameHeader& header, Bytes head) override;
  Status on_complete(InMessage& message) override;
  Status on_aborted(InMessage& message) override;
  const PeerSegment* segment(uint32_t index) const override;

  // "rank 3 at 10.0.2.7:4711"
  const std::string& name() const { return name_; }

 private:
  enum class State { kIdle, kWaiting, kHandshake, kOpening, kUp };
  // All (locked).
  void begin_dial(TimePoint now);
  void advance_dial();
  void establish();
  Status take_opened(const FrameHeader& header, Bytes payload);
  void pump();
  bool has_room(const CallState& call) const;
  void start(CallState& call);
  bool lend(CallState& call);
  void flush();
  void watch_writes(bool wanted);
  void lost(const Error& error);
  void close();
  void take_back_calls();
  void fail_executed_calls();
  void fail_all(const Error& error);
  void push_front(CallState& call);
  void send_control(FrameKind kind, uint64_t call, uint64_t object);
  Result<InMessage*> begin_reply(CallState& call, const FrameHeader& header, Bytes head);
  void answered(CallState& call, Status status);
  void retry(const std::string& why);
  void watch_silence(TimePoint now);
  CallState* find_call(uint64_t number);
  bool has_orphan(uint64_t number) const;
  InMessage* discard_record();
  Error about(const CallState& call, Code code, const std::string& what) const;
  comm::Link& stream() { return *link_; }

  ClientCore& core_;
  uint64_t tag_;
  Client::ServerAddress server_;
  std::string name_;

  State state_ = State::kIdle;
  std::optional<comm::Pending> pending_;
  std::unique_ptr<comm::Link> link_;
  Outbox outbox_;
  Inbox inbox_;
  bool watches_writes_ = false;
  bool has_more_ = false;        // received, but not parsed
  std::optional<Error> broken_;  // noticed by a thread that wrote
  std::optional<std::string> leave_reason_;

  bool has_session_ = false;
  size_t objects_ = 0;  // returned and not released
  TimePoint unreachable_since_{};
  TimePoint next_dial_{};
  Duration backoff_{};
  std::string failure_;  // of the last try
  TimePoint heard_at_{};
  uint64_t heard_bytes_ = 0;
  TimePoint sent_at_{};

  // The server's limits.
  uint32_t calls_max_ = 0;
  uint64_t window_bytes_ = 0;
  uint64_t message_bytes_max_ = 0;
  uint64_t lendable_ = 0;  // segments that the server has mapped, a bit each
  std::vector<std::optional<PeerSegment>> segments_;  // the server's

  CallState* first_ = nullptr;  // the queue
  CallState* last_ = nullptr;
  size_t queued_ = 0;
  uint32_t calls_ = 0;  // sent and not answered
  uint64_t bytes_ = 0;
  // Calls whose number a later state has, and that the server will still answer. The later state of
  // the same number waits for that, so that the answers cannot be mistaken for each other.
  std::vector<CallState*> orphans_;
  std::vector<CallState*> held_back_;
  std::vector<std::unique_ptr<InMessage>> unknown_;  // replies that nobody waits for
};

}  // namespace lockstep::rpc
