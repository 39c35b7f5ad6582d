#pragma once

#include <cstddef>

#include "agent/comm/frame.h"
#include "agent/comm/link.h"
#include "common/base/result.h"

namespace lockstep {

// A frame on its way out. advance() moves what the link takes and what is ready of the payload, and
// says whether anything moved.
class Outgoing {
 public:
  Outgoing(Link& link, const FrameHeader& header, const std::byte* payload)
      : link_(&link), header_(header), payload_(payload) {}

  Link& link() const { return *link_; }
  size_t bytes() const { return header_.bytes; }
  bool done() const { return sent_ == frame_bytes(header_.bytes); }
  // Whether something that is ready could not move.
  bool blocked(size_t ready) const {
    return sent_ < (ready == header_.bytes ? frame_bytes(ready) : kFrameAlign + ready);
  }
  // `ready`: how many bytes of the payload may be sent already.
  Result<bool> advance(size_t ready);

 private:
  Link* link_;
  FrameHeader header_;
  const std::byte* payload_;
  size_t sent_ = 0;  // of the whole frame
};

// What becomes of a payload: it is copied to `into`, or reduced into it.
struct Sink {
  std::byte* into = nullptr;
  bool reduces = false;
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;
};

// A frame on its way in. Its header must be the expected one.
class Incoming {
 public:
  Incoming(Link& link, const FrameHeader& expected, const Sink& sink)
      : link_(&link), expected_(expected), sink_(sink) {}

  Link& link() const { return *link_; }
  size_t bytes() const { return expected_.bytes; }
  bool done() const { return received_ == frame_bytes(expected_.bytes); }
  // Bytes of the payload that are in place.
  size_t ready() const;
  size_t missing() const { return frame_bytes(expected_.bytes) - received_; }
  Result<bool> advance();

 private:
  Result<size_t> take_header();
  Result<size_t> take_payload();
  Result<size_t> take_padding();

  Link* link_;
  FrameHeader expected_;
  Sink sink_;
  size_t received_ = 0;  // of the whole frame
};

}  // namespace lockstep
