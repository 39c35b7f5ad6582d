#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/comm/link.h"
#include "agent/rpc/acceptor.h"
#include "agent/rpc/inbox.h"
#include "agent/rpc/outbox.h"
#include "agent/rpc/served_call.h"

namespace lockstep::rpc {

// A server's connection to one client. Functions marked (locked) need the server's mutex. Those
// marked (loop) run on the server's thread alone; the others on any.
class ClientLink final : public FrameSink {
 public:
  // `number` names it among all connections that the server ever has.
  ClientLink(ServerCore& core, uint64_t number, Admitted admitted);

  // (loop) Reads and writes. An error ends the connection.
  Status on_event(bool readable, bool writable);
  bool has_work() const { return has_more_ || inbox_.copies(); }
  // (loop, locked) Pings. An error ends the connection.
  Status tick(TimePoint now);
  // (locked) Sends the reply of the call, once flushed.
  void send(ServedCall& call);
  // (locked)
  void flush();
  // (locked) Bytes of replies that were given to send() since the last flush().
  uint64_t added_bytes() const { return outbox_.added_bytes(); }
  // (locked) Takes all messages back, for the end of the connection.
  void close();
  // (locked) The call takes room in the client's windows, and gives it back.
  void count(ServedCall& call);
  void uncount(ServedCall& call);
  uint64_t lendable() const { return lendable_; }
  Session* session() const { return session_; }
  // "rank 3 from 10.0.2.7"
  const std::string& name() const { return name_; }
  uint64_t number() const { return number_; }
  int fd() const { return link_->fd(); }
  bool is_leaving() const { return is_leaving_; }

  // FrameSink (loop)
  Status on_control(const FrameHeader& header, Bytes payload) override;
  Result<InMessage*> on_message(const FrameHeader& header, Bytes head) override;
  Status on_complete(InMessage& message) override;
  Status on_aborted(InMessage& message) override;
  const PeerSegment* segment(uint32_t index) const override;

 private:
  Status take_opening(Bytes payload);
  Status check_windows(const FrameHeader& header) const;
  Status judge(ServedCall& call, const FrameHeader& header);
  void place_body(ServedCall& call, uint64_t body_bytes);
  void cancel(uint64_t number);
  void taken(uint64_t number);
  void watch_writes(bool wanted);

  ServerCore& core_;
  uint64_t number_;
  uint32_t rank_;
  std::string name_;
  std::unique_ptr<comm::Link> link_;
  Outbox outbox_;
  Inbox inbox_;
  bool watches_writes_ = false;
  bool has_more_ = false;
  bool is_leaving_ = false;  // the client has said goodbye
  std::optional<Error> broken_;
  Session* session_ = nullptr;  // null before its opening
  uint64_t lendable_ = 0;
  std::vector<std::optional<PeerSegment>> segments_;  // the client's
  TimePoint heard_at_{};
  uint64_t heard_bytes_ = 0;
  TimePoint sent_at_{};
  uint32_t calls_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace lockstep::rpc
