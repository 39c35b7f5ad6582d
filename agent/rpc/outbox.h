#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "agent/comm/link.h"
#include "agent/rpc/wire.h"
#include "common/base/result.h"

namespace lockstep::rpc {

// A message on its way out. Its owner keeps it, and the memory of its body, until the outbox has
// sent or dropped it.
struct OutMessage {
  void* owner = nullptr;        // the owner's; clear() keeps it
  FrameHeader header;           // of the first frame; `bytes` is set by the outbox
  std::vector<std::byte> head;  // head_bytes, and marks of a lent body
  std::vector<Bytes> body;      // to be sent; empty if it is lent
  // For the outbox: how far it is.
  size_t part = 0;
  size_t at = 0;      // in that part
  uint64_t left = 0;  // of the body
  bool has_begun = false;
  bool is_queued = false;

  // Resets all but the memory of the vectors.
  void clear();
};

// The frames that one side of a connection sends. Messages that fit in a frame go between the
// frames of larger ones, which go one after another: so a small message does not wait for the end
// of a large one, and each large one ends as soon as it can. Large pieces go from the caller's
// memory to the link; small frames are collected, so that many of them take one write. One thread
// at a time.
class Outbox {
 public:
  explicit Outbox(uint32_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}

  void add(OutMessage* message);
  // Adds a frame without payload, which goes out before messages that have not begun.
  void add_control(const FrameHeader& header) { controls_.push_back(header); }
  // A frame of only a preface, such as an Opening.
  void add_control(const FrameHeader& header, Bytes payload);
  // Gives the message up: its memory is not used afterwards. If it has begun, what is left of its
  // frame becomes zeros, and an abort follows.
  void drop(OutMessage* message);

  // Writes until the link takes no more, or at least `budget` bytes. Returns whether everything was
  // written.
  Result<bool> flush(comm::Link& link, size_t budget);
  bool is_empty() const;
  // Bytes of messages that were added since the last flush(), also of those that are lent.
  uint64_t added_bytes() const { return added_bytes_; }
  // Messages that were sent since the last call, oldest first. The caller clears the list.
  std::vector<OutMessage*>& sent() { return sent_; }

 private:
  bool compose();
  bool is_small(const OutMessage& message) const;
  void compose_first(OutMessage& message);
  void compose_more(OutMessage& message);
  void finish(std::deque<OutMessage*>& queue);
  void stage(Bytes bytes);
  void stage_frame(FrameHeader header, Bytes payload);
  void copy_body(OutMessage& message, size_t bytes);
  size_t staged_room() const;

  uint32_t frame_bytes_max_;
  std::vector<FrameHeader> controls_;
  std::deque<OutMessage*> small_;
  std::deque<OutMessage*> large_;
  std::vector<std::byte> staged_;  // copied, goes first
  size_t staged_sent_ = 0;
  Bytes direct_;                     // then this, from the memory of direct_of_
  OutMessage* direct_of_ = nullptr;  // null: nobody's any more
  size_t zeros_ = 0;                 // then this many zeros
  std::vector<OutMessage*> sent_;
  uint64_t added_bytes_ = 0;
};

}  // namespace lockstep::rpc
