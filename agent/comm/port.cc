#include "agent/comm/port.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "agent/comm/loans.h"
#include "agent/comm/message_text.h"
#include "common/base/check.h"

namespace lockstep::comm {
namespace {

constexpr std::array<std::byte, kFrameAlign> kZeros{};
// How much of a loan is read at a time, so that a fault is noticed in between.
constexpr size_t kLoanPiece = size_t{1} << 20;
// More credits than this cannot all belong to operations that are under way here.
constexpr size_t kCreditsMax = 4096;

bool is_credit(const FrameHeader& header) {
  return header.magic == FrameHeader::kMagic && header.step == kCreditStep;
}

}  // namespace

bool Port::takes_turn(const void* sender) {
  const auto turn = std::find(turns_.begin(), turns_.end(), sender);
  if (sender_ == nullptr && turn == turns_.begin()) {
    turns_.erase(turn);
    return true;
  }
  if (turn == turns_.end()) turns_.push_back(sender);
  return false;
}

void Port::begin(const void* sender, const FrameHeader& header, const std::byte* payload) {
  CHECK(sender_ == nullptr);
  sender_ = sender;
  outgoing_ = header;
  outgoing_payload_ = payload;
  const size_t in_link = payload_in_link(header);
  outgoing_bytes_ = kFrameAlign + in_link + padding_of(in_link);
  sent_ = 0;
}

uint64_t Port::begin_loan(const void* sender, FrameHeader header, const std::byte* payload) {
  header.magic = FrameHeader::kLoanMagic;
  begin(sender, header, nullptr);
  return link_->loans()->lend({payload, header.bytes});
}

Result<bool> Port::push() {
  const size_t in_link = payload_in_link(outgoing_);
  const size_t payload_end = kFrameAlign + in_link;
  bool moved = false;
  while (sent_ < outgoing_bytes_) {
    Bytes head;
    if (sent_ < kFrameAlign) head = std::as_bytes(std::span(&outgoing_, 1)).subspan(sent_);
    const size_t body_begin = std::clamp(sent_, kFrameAlign, payload_end) - kFrameAlign;
    const Bytes body(outgoing_payload_ + body_begin, in_link - body_begin);
    const Bytes tail = Bytes(kZeros).first(outgoing_bytes_ - std::max(sent_, payload_end));
    TRY_ASSIGN(const size_t taken, link_->write({head, body, tail}));
    if (taken == 0) return moved;
    sent_ += taken;
    moved = true;
  }
  sender_ = nullptr;
  return moved;
}

Status Port::skip_padding() {
  while (padding_left_ > 0) {
    TRY_ASSIGN(const Bytes padding, link_->peek({.at_least = 1, .at_most = padding_left_}));
    if (padding.empty()) return {};
    link_->consume(padding.size());
    padding_left_ -= padding.size();
  }
  return {};
}

// Takes credits out of the sequence of frames as they arrive.
Result<bool> Port::read_header() {
  while (!have_header_) {
    TRY(skip_padding());
    if (padding_left_ > 0) return false;
    TRY_ASSIGN(const Bytes head, link_->peek({.at_least = kFrameAlign, .at_most = kFrameAlign}));
    if (head.empty()) return false;
    std::memcpy(&incoming_, head.data(), sizeof incoming_);
    link_->consume(kFrameAlign);
    if (is_credit(incoming_)) {
      TRY(record_credit());
      continue;
    }
    TRY(check_frame(incoming_, options_.limits, link_->peer()));
    if (is_loan(incoming_) && link_->loans() == nullptr) {
      return corrupt(rank_name(link_->peer()) + " lends memory that this rank cannot read");
    }
    if (is_loan(incoming_)) ++loans_received_;
    have_header_ = true;
    payload_left_ = incoming_.bytes;
  }
  return true;
}

Status Port::record_credit() {
  const std::string who = rank_name(link_->peer());
  if (incoming_.bytes > 0) return corrupt(who + " sent a credit with a payload");
  for (FrameHeader& known : credits_) {
    const uint64_t before = std::exchange(known.total, incoming_.total);
    if (known == incoming_) return {};
    known.total = before;
  }
  if (credits_.size() >= kCreditsMax) {
    return corrupt(who + " sent credits for operations that are not running");
  }
  credits_.push_back(incoming_);
  return {};
}

Result<size_t> Port::credit(const FrameHeader& operation, size_t allowed) {
  TRY_ASSIGN(const bool there, read_header());
  if (there) {
    TRY(check_round(incoming_, operation.round, link_->peer()));
    in_the_way_ = true;
  }
  for (auto credit = credits_.begin(); credit != credits_.end(); ++credit) {
    FrameHeader expected = operation;
    expected.step = kCreditStep;
    expected.total = credit->total;
    TRY_ASSIGN(const FrameMatch found, match_frame(expected, *credit, link_->peer()));
    if (found == FrameMatch::kOtherOperation) continue;
    allowed = std::max<size_t>(allowed, credit->total);
    credits_.erase(credit);
    break;
  }
  return allowed;
}

Port::StreamKey Port::stream_of(const FrameHeader& header) {
  const bool is_message = header.kind == Collective::kSend;
  return {.group = header.group,
          .is_message = is_message,
          .sequence = is_message ? header.sequence : 0};
}

// All that has arrived of the last frame may be taken already; its rest is in the link.
Port::BufferedFrame* Port::first_buffered(const FrameHeader& expected) {
  const auto stream = buffered_streams_.find(stream_of(expected));
  if (stream == buffered_streams_.end()) return nullptr;
  BufferedFrame* first = stream->second.front();
  return first == partial_frame_ && first->taken == first->held ? nullptr : first;
}

Result<Port::Next> Port::match_next(const FrameHeader& expected) {
  if (BufferedFrame* frame = buffered_.empty() ? nullptr : first_buffered(expected);
      frame != nullptr) {
    TRY_ASSIGN(const FrameMatch found, match_frame(expected, frame->header, link_->peer()));
    CHECK(found == FrameMatch::kMatches);
    source_ = {.buffered = frame, .left = frame->held - frame->taken};
    return Next::kMatches;
  }
  TRY_ASSIGN(const bool there, read_header());
  if (!there) return Next::kNone;
  TRY_ASSIGN(const FrameMatch found, match_frame(expected, incoming_, link_->peer()));
  if (found == FrameMatch::kOtherOperation) {
    in_the_way_ = true;
    return Next::kOtherOperation;
  }
  source_ = {.buffered = nullptr, .left = payload_left_};
  return Next::kMatches;
}

Result<Bytes> Port::peek(size_t at_least, size_t at_most) {
  if (source_.buffered != nullptr) {
    const BufferedFrame& frame = *source_.buffered;
    return Bytes(frame.data() + frame.taken, std::min(at_most, source_.left));
  }
  return link_->peek({.at_least = at_least, .at_most = std::min(at_most, source_.left)});
}

// Drops a frame that is the first of its stream.
void Port::drop(const BufferedFrame& frame) {
  buffered_bytes_ -= frame.capacity + kBufferedFrameOverheadBytes;
  if (partial_frame_ == &frame) partial_frame_ = nullptr;
  const auto stream = buffered_streams_.find(stream_of(frame.header));
  CHECK(stream != buffered_streams_.end() && stream->second.front() == &frame);
  stream->second.pop_front();
  if (stream->second.empty()) buffered_streams_.erase(stream);
  const uint64_t number = frame.number;
  buffered_.erase(number);
  source_ = {};
}

Status Port::consume(size_t bytes) {
  CHECK(bytes <= source_.left);
  source_.left -= bytes;
  if (source_.buffered != nullptr) {
    source_.buffered->taken += bytes;
    if (source_.left == 0) drop(*source_.buffered);
    return {};
  }
  link_->consume(bytes);
  payload_left_ -= bytes;
  return payload_left_ == 0 ? finish_empty() : Status();
}

Result<size_t> Port::read(std::span<std::byte> into) {
  const size_t wanted = std::min(into.size(), source_.left);
  if (source_.buffered != nullptr) {
    std::memcpy(into.data(), source_.buffered->data() + source_.buffered->taken, wanted);
    TRY(consume(wanted));
    return wanted;
  }
  if (is_lent()) {
    TRY_ASSIGN(const size_t got, borrow(into.first(wanted)));
    source_.left = payload_left_;
    if (payload_left_ == 0) TRY(finish_empty());
    return got;
  }
  TRY_ASSIGN(const size_t got, link_->read(into.first(wanted)));
  source_.left -= got;
  payload_left_ -= got;
  if (got > 0 && payload_left_ == 0) TRY(finish_empty());
  return got;
}

// Reads a piece of what the frame in the link lends. Nothing read ends the loan.
Result<size_t> Port::borrow(std::span<std::byte> into) {
  Loans& loans = *link_->loans();
  const size_t at = incoming_.bytes - payload_left_;
  TRY_ASSIGN(const size_t got,
             loans.read(loans_received_, at, into.first(std::min(into.size(), kLoanPiece))));
  payload_left_ = got == 0 ? 0 : payload_left_ - got;
  if (payload_left_ == 0) TRY(loans.give_back(loans_received_, at + got));
  return got;
}

Status Port::finish_empty() {
  if (source_.buffered != nullptr) {
    drop(*source_.buffered);
    return {};
  }
  CHECK(have_header_ && payload_left_ == 0);
  have_header_ = false;
  // The frame's beginning was buffered, and taken from there before the rest.
  if (partial_frame_ != nullptr) drop(*partial_frame_);
  source_ = {};
  padding_left_ = padding_of(payload_in_link(incoming_));
  return skip_padding();
}

size_t Port::missing() const {
  if (have_header_) return payload_left_ + padding_of(incoming_.bytes);
  return padding_left_ + kFrameAlign;
}

Error Port::buffer_full() const {
  const FrameHeader& first = buffered_.empty() ? incoming_ : buffered_.begin()->second.header;
  return conflict("blocked by " + std::to_string(buffered_bytes_ >> 10) + " KiB from " +
                  rank_name(link_->peer()) + " that no operation here can take yet (" +
                  describe(first) + " and others); the limit is " +
                  std::to_string(buffered_bytes_max(options_.limits) >> 10) + " KiB");
}

// Makes the entry for the frame that is first in the link.
Port::BufferedFrame& Port::begin_buffering() {
  BufferedFrame& frame = buffered_[++frames_buffered_];
  frame.number = frames_buffered_;
  frame.header = incoming_;
  frame.capacity = payload_left_;
  frame.memory =
      std::make_unique_for_overwrite<Line[]>((payload_left_ + kFrameAlign - 1) / kFrameAlign);
  buffered_streams_[stream_of(incoming_)].push_back(&frame);
  return frame;
}

Result<bool> Port::buffer_frame() {
  in_the_way_ = false;
  TRY_ASSIGN(const bool there, read_header());
  if (!there) return false;
  const bool begins = partial_frame_ == nullptr;
  if (begins) {
    const size_t cost = payload_left_ + kBufferedFrameOverheadBytes;
    if (buffered_bytes_ + cost > buffered_bytes_max(options_.limits)) return buffer_full();
    buffered_bytes_ += cost;
    partial_frame_ = &begin_buffering();
  }
  BufferedFrame& frame = *partial_frame_;
  bool moved = begins;
  // Whole elements, because a reduction takes each element from one place.
  const size_t element = std::max<size_t>(1, data_type_bytes(incoming_.type));
  if (payload_left_ > 0 && is_loan(incoming_)) {
    TRY_ASSIGN(const size_t got, borrow({frame.data() + frame.held, payload_left_}));
    frame.held += got;
    if (payload_left_ > 0) return true;
  }
  while (payload_left_ > 0) {
    const size_t least = std::min(element, payload_left_);
    TRY_ASSIGN(const Bytes piece, link_->peek({.at_least = least, .at_most = payload_left_}));
    if (piece.empty()) return moved;
    const bool all = piece.size() == payload_left_;
    const size_t whole = all ? piece.size() : piece.size() - piece.size() % element;
    std::memcpy(frame.data() + frame.held, piece.data(), whole);
    link_->consume(whole);
    frame.held += whole;
    payload_left_ -= whole;
    moved = true;
  }
  partial_frame_ = nullptr;
  source_ = {};
  TRY(finish_empty());
  return true;
}

}  // namespace lockstep::comm
