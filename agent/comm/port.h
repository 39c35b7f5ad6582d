#pragma once

#include <compare>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "agent/comm/comm_limits.h"
#include "agent/comm/frame.h"
#include "agent/comm/link.h"
#include "agent/comm/loans.h"
#include "common/base/result.h"

namespace lockstep::comm {

// The frames of one link. A frame begins when its whole payload is ready and goes out without a
// break, so that it waits for nothing but the other side. Several senders take turns, a frame each.
// Frames of several operations may follow one another on a link. An operation that finds another
// one's frame in front of its own leaves it there. If no operation under way can take that frame,
// it is buffered in memory. One thread at a time.
class Port {
 public:
  struct Options {
    bool leaves_host = false;
    CommLimits limits;
  };
  Port(Link* link, Options options) : link_(link), options_(options) {}
  Link& link() const { return *link_; }
  // Whether begin_loan() may be called.
  bool lends() const { return link_->loans() != nullptr && link_->loans()->lends(); }
  // Whether its other side is on another host.
  bool leaves_host() const { return options_.leaves_host; }

  // The sender of the frame on its way out; null: the next frame may begin.
  const void* sender() const { return sender_; }
  // Whether it is this sender's turn to begin. If not, the sender queues, and has to ask again
  // until its turn comes.
  bool may_begin(const void* sender) {
    return (sender_ == nullptr && turns_.empty()) || takes_turn(sender);
  }
  // The payload must stay valid until sender() is null again.
  void begin(const void* sender, const FrameHeader& header, const std::byte* payload);
  // Begins a frame that lends its payload, which must stay valid until the loan is returned.
  // Returns the loan's number. Only if the link lends.
  uint64_t begin_loan(const void* sender, FrameHeader header, const std::byte* payload);
  // Moves what the link takes; returns whether anything moved.
  Result<bool> push();

  // Whether the next frame belongs to the expected operation. If it does, the calls below take the
  // rest of its payload, and left() == 0 ends it.
  enum class Next { kNone, kMatches, kOtherOperation };
  Result<Next> match_next(const FrameHeader& expected);
  // Remaining payload of the frame that match_next() found.
  size_t left() const { return source().left; }
  // Whether that payload is lent and not buffered: only read() takes it, a piece at a time.
  bool is_lent() const { return source_.buffered == nullptr && have_header_ && is_loan(incoming_); }
  Result<Bytes> peek(size_t at_least, size_t at_most);
  Status consume(size_t bytes);
  // If this ends the frame without reading anything, the rest was unreadable and comes in another
  // frame.
  Result<size_t> read(std::span<std::byte> into);
  // Ends the frame, which has no payload left.
  Status finish_empty();
  // Bytes that are certain to come before the frame is complete.
  size_t missing() const;

  // Returns how much the other side allows of this operation, by its latest credit, or `allowed` if
  // it has sent none. Marks a frame in front, which may hide a credit, as being in the way.
  Result<size_t> credit(const FrameHeader& operation, size_t allowed);

  // Copies the frame in front into memory, so that the following one can be seen; returns whether
  // anything moved. kConflict if this port already keeps as much as it may.
  Result<bool> buffer_frame();
  bool in_the_way() const { return in_the_way_; }
  // The header of the first frame that was buffered and not taken; null if there is none.
  const FrameHeader* first_buffered_header() const {
    return buffered_.empty() ? nullptr : &buffered_.begin()->second.header;
  }

 private:
  struct alignas(kFrameAlign) Line {
    std::byte bytes[kFrameAlign];
  };
  // Identifies frames that are taken one after another: by the group and, for a send, its number.
  struct StreamKey {
    uint64_t group = 0;
    bool is_message = false;
    uint64_t sequence = 0;  // of a message, else 0
    auto operator<=>(const StreamKey&) const = default;
  };
  struct BufferedFrame {
    uint64_t number = 0;  // key in buffered_
    FrameHeader header;
    std::unique_ptr<Line[]> memory;
    size_t capacity = 0;
    size_t held = 0;  // bytes in it; until it is full, the link has the rest
    size_t taken = 0;

    std::byte* data() const { return reinterpret_cast<std::byte*>(memory.get()); }
  };
  // Where the frame is that match_next() found: buffered, or in the link.
  struct Source {
    BufferedFrame* buffered = nullptr;
    size_t left = 0;
  };
  const Source& source() const { return source_; }
  static StreamKey stream_of(const FrameHeader& header);
  // Returns the first frame of the stream that was buffered and has bytes to take; null if none
  // has.
  BufferedFrame* first_buffered(const FrameHeader& expected);
  BufferedFrame& begin_buffering();
  bool takes_turn(const void* sender);
  Status skip_padding();
  Result<bool> read_header();
  Status record_credit();
  Result<size_t> borrow(std::span<std::byte> into);
  void drop(const BufferedFrame& frame);
  Error buffer_full() const;

  Link* link_;
  Options options_;
  const void* sender_ = nullptr;
  std::vector<const void*> turns_;  // senders that wait to begin
  FrameHeader outgoing_;
  const std::byte* outgoing_payload_ = nullptr;
  size_t outgoing_bytes_ = 0;  // of the frame, with header and padding
  size_t sent_ = 0;

  FrameHeader incoming_;
  bool have_header_ = false;
  size_t payload_left_ = 0;
  size_t padding_left_ = 0;
  uint64_t loans_received_ = 0;  // ever received; also the number of the last one
  Source source_;
  bool in_the_way_ = false;
  BufferedFrame* partial_frame_ =
      nullptr;                    // in buffered_: begins the frame that is first in the link
  uint64_t frames_buffered_ = 0;  // ever made
  std::map<uint64_t, BufferedFrame> buffered_;  // in order of arrival
  std::map<StreamKey, std::deque<BufferedFrame*>> buffered_streams_;
  size_t buffered_bytes_ = 0;
  std::vector<FrameHeader> credits_;  // received and not asked for yet; one per operation
};

}  // namespace lockstep::comm
