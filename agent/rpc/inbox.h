#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/comm/link.h"
#include "agent/rpc/shared_memory.h"
#include "agent/rpc/wire.h"
#include "common/base/result.h"

namespace lockstep::rpc {

// A message on its way in, after its head: where its body goes. The sink owns it until the inbox
// reports its end.
struct InMessage {
  void* owner = nullptr;  // the sink's; clear() keeps it
  uint64_t call = 0;
  uint64_t left = 0;                       // of the body, to come
  bool discards = false;                   // the body is read and thrown away
  std::vector<std::span<std::byte>> into;  // together at least `left`, unless it discards
  // For the inbox: the place of the next byte.
  size_t part = 0;
  size_t at = 0;
  // A lent body.
  LentMark mark;
  std::vector<LentPiece> pieces;
  size_t piece = 0;
  uint64_t piece_at = 0;
  uint64_t copied_in_all = 0;

  // Resets all but the memory of the vectors.
  void clear();
};

// Takes what an inbox has parsed. Errors end the connection; their messages follow the peer's name.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A frame that belongs to no message; `payload` is an Opening's.
  virtual Status on_control(const FrameHeader& header, Bytes payload) = 0;
  // A message begins. Returns its record, with `into` or `discards` set. For an error reply, `head`
  // is its text.
  virtual Result<InMessage*> on_message(const FrameHeader& header, Bytes head) = 0;
  // All of the body is there, or was discarded. The record is the sink's again.
  virtual Status on_complete(InMessage& message) = 0;
  // The sender has given the message up, or what it lent has changed. Likewise.
  virtual Status on_aborted(InMessage& message) = 0;
  // The peer's segment; null if it is not mapped.
  virtual const PeerSegment* segment(uint32_t index) const = 0;
};

// The frames that one side of a connection receives. Every byte is checked before it is used;
// memory for bodies is the sink's. One thread at a time.
class Inbox {
 public:
  struct Options {
    Side sender = Side::kClient;
    const Limits* limits = nullptr;  // outlives this
  };
  explicit Inbox(const Options& options) : options_(options) {}

  // Reads until nothing more is here, or about `budget` bytes were read. Returns whether it stopped
  // for the budget. kCorrupt: the stream is worthless from here on; the message
  // says at which byte.
  Result<bool> receive(comm::Link& link, FrameSink& sink, size_t budget);
  // Whether lent bodies are being copied, so that receive() has work without input.
  bool copies() const { return !lent_.empty(); }
  // Bytes received so far.
  uint64_t received() const { return offset_; }
  // Throws away what is still to come of the message. The record stays the inbox's until its end.
  static void discard(InMessage& message);
  // Whether the message has begun and not ended.
  bool has(const InMessage& message) const;
  // Takes all records back, for a connection that has ended.
  std::vector<InMessage*> release_all();

 private:
  // Returns false if the frame's beginning is not here yet.
  Result<bool> take_frame(comm::Link& link, FrameSink& sink);
  Result<size_t> take_payload(comm::Link& link, FrameSink& sink);
  Result<size_t> skip(comm::Link& link, size_t bytes);
  Status begin(const FrameHeader& header, Bytes preface, FrameSink& sink);
  Status begin_lent(const FrameHeader& header, Bytes marks, InMessage& message, FrameSink& sink);
  Status continue_message(const FrameHeader& header);
  Status abort(const FrameHeader& header, FrameSink& sink);
  Status copy_lent(FrameSink& sink, size_t budget);
  Status finish_lent(InMessage& message, FrameSink& sink);
  InMessage* find(uint64_t call) const;
  void forget(InMessage& message);
  Error located(const Error& error) const;

  Options options_;
  uint64_t offset_ = 0;       // in the stream, consumed
  uint64_t frame_begin_ = 0;  // of the current frame
  InMessage* current_ = nullptr;
  size_t payload_left_ = 0;  // of the current frame, for current_
  size_t padding_left_ = 0;
  std::vector<InMessage*> messages_;  // begun, not ended
  std::vector<InMessage*> lent_;      // of these: copied from the peer's memory
};

}  // namespace lockstep::rpc
