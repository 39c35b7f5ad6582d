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

namespace lockstep {

// The frames of one link. A frame begins when all of its payload is there and goes out whole, so
// that it waits for nothing but the other side. Several senders take turns, a frame each. Frames of
// several operations may follow one another on a link: an operation that finds another's in front
// of its own leaves it there, and it is put aside in memory if it belongs to none that can take it.
// One thread at a time.
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
  // Its other side is on another host.
  bool leaves_host() const { return options_.leaves_host; }

  // Whose frame is on its way out; null: the next one may begin.
  const void* sender() const { return sender_; }
  // Whether it is this one's turn to begin; else it waits for its turn from now on, and has to ask
  // again until it comes.
  bool may_begin(const void* sender) {
    return (sender_ == nullptr && turns_.empty()) || takes_turn(sender);
  }
  // `payload` stays where it is until sender() is null again.
  void begin(const void* sender, const FrameHeader& header, const std::byte* payload);
  // The same without the payload, which is lent, and stays where it is until the loan, whose number
  // this is, was returned. Only where the link lends.
  uint64_t begin_loan(const void* sender, FrameHeader header, const std::byte* payload);
  // Moves what the link takes; whether anything moved.
  Result<bool> push();

  // Whether the next frame is the expected operation's. If it is: what is left of its payload is
  // taken with the calls below, and left() == 0 ends it.
  enum class Next { kNone, kOurs, kElsewhere };
  Result<Next> look(const FrameHeader& expected);
  // Of the payload of the frame that look() found.
  size_t left() const { return source().left; }
  // It is lent, and not put aside: read() alone takes it, a piece at a time.
  bool is_lent() const { return source_.aside == nullptr && have_header_ && is_loan(coming_); }
  Result<Bytes> peek(size_t at_least, size_t at_most);
  Status consume(size_t bytes);
  // Where this ends the frame and nothing was read, the rest could not be: it comes in another one.
  Result<size_t> read(std::span<std::byte> into);
  // An empty one, which is over once it was seen.
  Status finish_empty();
  // Bytes that are certain to come before the frame is complete.
  size_t missing() const;

  // How much the other side has allowed of this operation by the last credit that has come, or
  // `allowed` if none has. A frame in front, behind which it may come, is in the way.
  Result<size_t> credit(const FrameHeader& operation, size_t allowed);

  // Copies what is in front into memory, so that what is behind it can be seen; whether anything
  // moved. kConflict where as much is kept already as this port may keep.
  Result<bool> put_aside();
  bool in_the_way() const { return in_the_way_; }
  // The header of the first frame that was put aside and not taken; null if there is none.
  const FrameHeader* waiting() const {
    return aside_.empty() ? nullptr : &aside_.begin()->second.header;
  }

 private:
  struct alignas(kFrameAlign) Line {
    std::byte bytes[kFrameAlign];
  };
  // What frames that come one after the other have in common: the group and, of a send, its number.
  struct Row {
    uint64_t group = 0;
    bool is_message = false;
    uint64_t sequence = 0;  // of a message
    auto operator<=>(const Row&) const = default;
  };
  struct Aside {
    uint64_t number = 0;  // in aside_
    FrameHeader header;
    std::unique_ptr<Line[]> memory;
    size_t capacity = 0;
    size_t held = 0;  // bytes in it; while there is room the rest of the frame is in the link
    size_t taken = 0;

    std::byte* data() const { return reinterpret_cast<std::byte*>(memory.get()); }
  };
  // Where the frame that look() found lies: put aside, or in the link.
  struct Source {
    Aside* aside = nullptr;
    size_t left = 0;
  };
  const Source& source() const { return source_; }
  static Row row_of(const FrameHeader& header);
  // The first of the row that was put aside and has anything to be taken; null if there is none.
  Aside* first_aside(const FrameHeader& expected);
  Aside& begin_aside();
  bool takes_turn(const void* sender);
  Status skip_padding();
  Result<bool> read_header();
  Status note_credit();
  Result<size_t> borrow(std::span<std::byte> into);
  void drop(const Aside& aside);
  Error too_much_aside() const;

  Link* link_;
  Options options_;
  const void* sender_ = nullptr;
  std::vector<const void*> turns_;  // of those who wait to begin
  FrameHeader going_;
  const std::byte* going_payload_ = nullptr;
  size_t going_bytes_ = 0;  // of the frame, with header and padding
  size_t sent_ = 0;

  FrameHeader coming_;
  bool have_header_ = false;
  size_t payload_left_ = 0;
  size_t padding_left_ = 0;
  uint64_t loans_come_ = 0;  // ever; the number of the last one
  Source source_;
  bool in_the_way_ = false;
  Aside* filling_ = nullptr;         // of aside_: begins the frame that is first in the link
  uint64_t asides_ = 0;              // ever
  std::map<uint64_t, Aside> aside_;  // as they came
  std::map<Row, std::deque<Aside*>> aside_rows_;
  size_t aside_bytes_ = 0;
  std::vector<FrameHeader> credits_;  // that have come and weren't asked for; one an operation
};

}  // namespace lockstep
