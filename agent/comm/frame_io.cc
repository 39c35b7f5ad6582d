#include "agent/comm/frame_io.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "agent/comm/reduce.h"

namespace lockstep {
namespace {

constexpr std::array<std::byte, kFrameAlign> kZeros{};
// What is reduced at a time: the piece and its target stay in the cache between arriving and being
// sent on, and the other side gets its space back early.
constexpr size_t kReducePiece = size_t{64} << 10;

}  // namespace

Result<bool> Outgoing::advance(size_t ready) {
  const size_t payload_end = kFrameAlign + header_.bytes;
  bool moved = false;
  while (!done()) {
    const size_t body_begin = sent_ <= kFrameAlign ? 0 : std::min(sent_, payload_end) - kFrameAlign;
    const size_t body_end = std::max(body_begin, std::min<size_t>(ready, header_.bytes));
    Bytes head;
    if (sent_ < kFrameAlign) head = std::as_bytes(std::span(&header_, 1)).subspan(sent_);
    Bytes tail;
    if (body_end == header_.bytes) {
      const size_t from = std::max(sent_, payload_end);
      tail = Bytes(kZeros).first(frame_bytes(header_.bytes) - from);
    }
    const Bytes body(payload_ + body_begin, body_end - body_begin);
    const size_t offered = head.size() + body.size() + tail.size();
    if (offered == 0) break;
    TRY_ASSIGN(const size_t taken, link_->write({head, body, tail}));
    sent_ += taken;
    moved = moved || taken > 0;
    if (taken < offered) break;
  }
  return moved;
}

size_t Incoming::ready() const {
  if (received_ <= kFrameAlign) return 0;
  return std::min<size_t>(received_ - kFrameAlign, expected_.bytes);
}

Result<bool> Incoming::advance() {
  bool moved = false;
  while (!done()) {
    auto taken = received_ < kFrameAlign     ? take_header()
                 : ready() < expected_.bytes ? take_payload()
                                             : take_padding();
    if (!taken.ok()) return taken.error();
    if (*taken == 0) break;
    received_ += *taken;
    moved = true;
    // Let what came go on before more is taken.
    if (sink_.reduces && ready() < expected_.bytes) break;
  }
  return moved;
}

Result<size_t> Incoming::take_header() {
  TRY_ASSIGN(const Bytes head, link_->peek({.at_least = kFrameAlign, .at_most = kFrameAlign}));
  if (head.empty()) return size_t{0};
  FrameHeader got;
  std::memcpy(&got, head.data(), sizeof got);
  TRY(check_frame(expected_, got, link_->peer()));
  link_->consume(kFrameAlign);
  return kFrameAlign;
}

Result<size_t> Incoming::take_payload() {
  const size_t offset = ready();
  const size_t left = expected_.bytes - offset;
  if (!sink_.reduces) return link_->read({sink_.into + offset, left});
  const size_t element = data_type_bytes(sink_.type);
  TRY_ASSIGN(const Bytes piece,
             link_->peek({.at_least = element, .at_most = std::min(left, kReducePiece)}));
  const size_t count = piece.size() / element;
  if (count == 0) return size_t{0};
  reduce(sink_.type, sink_.op, {.into = sink_.into + offset, .from = piece.data(), .count = count});
  link_->consume(count * element);
  return count * element;
}

Result<size_t> Incoming::take_padding() {
  TRY_ASSIGN(const Bytes padding, link_->peek({.at_least = 1, .at_most = missing()}));
  link_->consume(padding.size());
  return padding.size();
}

}  // namespace lockstep
