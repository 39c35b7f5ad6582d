#include "agent/rpc/inbox.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "agent/comm/copy.h"
#include "common/base/check.h"

namespace lockstep::rpc {
namespace {

// Lent bytes copied in a row, so that frames are read meanwhile.
constexpr size_t kCopyPiece = size_t{2} << 20;
// From this size on, copies bypass the caches (agent/comm/comm_limits.h).
constexpr uint64_t kPastCacheBytes = uint64_t{8} << 20;
// Discarded bytes read in a row.
constexpr size_t kSkipPiece = size_t{64} << 10;

void copy_bytes(std::byte* into, Bytes from, bool past_cache) {
  if (past_cache) {
    comm::copy_past_cache(into, from.data(), from.size());
  } else {
    std::memcpy(into, from.data(), from.size());
  }
}

// Returns the next place for at most `most` bytes of the body.
std::span<std::byte> next_place(InMessage& message, size_t most) {
  while (message.part < message.into.size() && message.into[message.part].size() == message.at) {
    ++message.part;
    message.at = 0;
  }
  CHECK(message.part < message.into.size());
  const std::span<std::byte> rest = message.into[message.part].subspan(message.at);
  return rest.first(std::min(most, rest.size()));
}

}  // namespace

void InMessage::clear() {
  call = left = copied_in_all = piece_at = 0;
  discards = false;
  into.clear();
  pieces.clear();
  part = at = piece = 0;
  mark = {};
}

void Inbox::discard(InMessage& message) {
  message.discards = true;
  message.into.clear();
  message.part = message.at = 0;
}

bool Inbox::has(const InMessage& message) const {
  return std::find(messages_.begin(), messages_.end(), &message) != messages_.end();
}

InMessage* Inbox::find(uint64_t call) const {
  for (InMessage* const message : messages_) {
    if (message->call == call) return message;
  }
  return nullptr;
}

void Inbox::forget(InMessage& message) {
  std::erase(messages_, &message);
  std::erase(lent_, &message);
  if (current_ == &message) current_ = nullptr;
}

std::vector<InMessage*> Inbox::release_all() {
  lent_.clear();
  current_ = nullptr;
  payload_left_ = padding_left_ = 0;
  return std::exchange(messages_, {});
}

Error Inbox::located(const Error& error) const {
  if (error.code != Code::kCorrupt) return error;
  return corrupt(error.message + ", at byte " + std::to_string(frame_begin_) + " of its stream");
}

Result<bool> Inbox::receive(comm::Link& link, FrameSink& sink, size_t budget) {
  const uint64_t until = offset_ + budget;
  bool stopped = false;
  for (;;) {
    if (offset_ >= until) {
      stopped = true;
      break;
    }
    if (payload_left_ > 0 || padding_left_ > 0) {
      const Result<size_t> got =
          payload_left_ > 0 ? take_payload(link, sink) : skip(link, padding_left_);
      if (!got.ok()) return located(got.error());
      if (*got == 0) break;
      continue;
    }
    const Result<bool> moved = take_frame(link, sink);
    if (!moved.ok()) return located(moved.error());
    if (!*moved) break;
  }
  if (!lent_.empty()) {
    const Status copied = copy_lent(sink, kCopyPiece);
    if (!copied.ok()) return located(copied.error());
  }
  if (!stopped) link.expect(payload_left_ + padding_left_ > 0 ? payload_left_ + padding_left_ : 1);
  return stopped;
}

// Consumes bytes that nobody needs.
Result<size_t> Inbox::skip(comm::Link& link, size_t bytes) {
  TRY_ASSIGN(const Bytes piece, link.peek({.at_least = 1, .at_most = std::min(bytes, kSkipPiece)}));
  link.consume(piece.size());
  offset_ += piece.size();
  if (payload_left_ == 0) padding_left_ -= piece.size();
  return piece.size();
}

Result<size_t> Inbox::take_payload(comm::Link& link, FrameSink& sink) {
  InMessage* const message = current_;
  size_t got = 0;
  if (message == nullptr || message->discards) {
    TRY_ASSIGN(got, skip(link, payload_left_));
  } else {
    TRY_ASSIGN(got, link.read(next_place(*message, payload_left_)));
    message->at += got;
    offset_ += got;
  }
  payload_left_ -= got;
  if (message == nullptr) return got;
  message->left -= got;
  if (message->left > 0) return got;
  forget(*message);
  TRY(sink.on_complete(*message));
  return got;
}

Result<bool> Inbox::take_frame(comm::Link& link, FrameSink& sink) {
  frame_begin_ = offset_;
  TRY_ASSIGN(Bytes piece, link.peek({.at_least = kFrameAlign, .at_most = kFrameAlign}));
  if (piece.empty()) return false;
  FrameHeader header;
  std::memcpy(static_cast<void*>(&header), piece.data(), sizeof header);
  TRY(check_frame(header, options_.sender, *options_.limits));
  const size_t preface = preface_of(header);
  Bytes told;
  if (preface > 0) {
    // A ring returns less than a whole preface where it ends; connections do not.
    TRY_ASSIGN(piece,
               link.peek({.at_least = kFrameAlign + preface, .at_most = kFrameAlign + preface}));
    if (piece.empty()) return false;
    CHECK(piece.size() == kFrameAlign + preface);
    told = piece.subspan(kFrameAlign);
  }
  const Status begun = begin(header, told, sink);
  link.consume(kFrameAlign + preface);
  offset_ += kFrameAlign + preface;
  TRY(begun);
  payload_left_ = header.bytes - preface;
  padding_left_ = padding_of(header.bytes);
  if (current_ == nullptr || current_->left > 0) return true;
  InMessage* const message = current_;  // it has no body
  forget(*message);
  TRY(sink.on_complete(*message));
  return true;
}

Status Inbox::begin(const FrameHeader& header, Bytes preface, FrameSink& sink) {
  current_ = nullptr;
  if (header.kind == FrameKind::kMore) return continue_message(header);
  if (header.kind == FrameKind::kAbort) return abort(header, sink);
  if (!begins_message(header.kind)) return sink.on_control(header, preface);
  if (find(header.call) != nullptr) return corrupt("began a message again before its end");
  const size_t head = header.code != 0 ? header.bytes : header.head_bytes;
  TRY_ASSIGN(InMessage* const message, sink.on_message(header, preface.first(head)));
  message->call = header.call;
  message->left = header.total - head;
  messages_.push_back(message);
  if (header.pieces > 0) return begin_lent(header, preface.subspan(head), *message, sink);
  current_ = message;
  return {};
}

Status Inbox::begin_lent(const FrameHeader& header, Bytes marks, InMessage& message,
                         FrameSink& sink) {
  std::memcpy(static_cast<void*>(&message.mark), marks.data(), sizeof message.mark);
  message.pieces.resize(header.pieces);
  std::memcpy(static_cast<void*>(message.pieces.data()), marks.data() + sizeof message.mark,
              header.pieces * sizeof(LentPiece));
  message.piece = 0;
  message.piece_at = message.copied_in_all = 0;
  uint64_t lent = 0;
  const auto is_there = [&](const LentPiece& piece) {
    const PeerSegment* const segment = sink.segment(piece.segment);
    return segment != nullptr && segment->at(piece.offset, piece.bytes).has_value();
  };
  for (const LentPiece& piece : message.pieces) {
    if (!is_there(piece)) return corrupt("lent memory that is in none of its segments");
    lent += piece.bytes;
  }
  if (sink.segment(message.mark.segment) == nullptr) return corrupt("lent without a mark");
  if (lent != message.left) {
    return corrupt("lent " + std::to_string(lent) + " bytes for a body of " +
                   std::to_string(message.left));
  }
  lent_.push_back(&message);
  return {};
}

Status Inbox::continue_message(const FrameHeader& header) {
  InMessage* const message = find(header.call);
  if (message == nullptr) return corrupt("sent a piece of a message that has not begun");
  if (!message->pieces.empty()) return corrupt("sent a piece of a body that it has lent");
  if (header.bytes > message->left) {
    return corrupt("sent more of a message than it has: expected at most " +
                   std::to_string(message->left) + " bytes, got " + std::to_string(header.bytes));
  }
  current_ = message;
  return {};
}

Status Inbox::abort(const FrameHeader& header, FrameSink& sink) {
  InMessage* const message = find(header.call);
  // The sender may not know yet that the message was complete.
  if (message == nullptr) return corrupt("aborted a message that has not begun");
  forget(*message);
  return sink.on_aborted(*message);
}

// Copies a piece of each lent body.
Status Inbox::copy_lent(FrameSink& sink, size_t budget) {
  const std::vector<InMessage*> all = lent_;
  for (InMessage* const message : all) {
    size_t rest = budget;
    const bool past_cache = message->left + message->copied_in_all >= kPastCacheBytes;
    while (rest > 0 && message->left > 0 && !message->discards) {
      const LentPiece& piece = message->pieces[message->piece];
      if (message->piece_at == piece.bytes) {
        ++message->piece;
        message->piece_at = 0;
        continue;
      }
      const auto most =
          static_cast<size_t>(std::min<uint64_t>(rest, piece.bytes - message->piece_at));
      const std::span<std::byte> into = next_place(*message, most);
      const auto from =
          sink.segment(piece.segment)->at(piece.offset + message->piece_at, into.size());
      copy_bytes(into.data(), *from, past_cache);
      message->at += into.size();
      message->piece_at += into.size();
      message->copied_in_all += into.size();
      message->left -= into.size();
      rest -= into.size();
    }
    if (message->left == 0 || message->discards) TRY(finish_lent(*message, sink));
  }
  return {};
}

Status Inbox::finish_lent(InMessage& message, FrameSink& sink) {
  const PeerSegment& segment = *sink.segment(message.mark.segment);
  const bool is_valid = segment.still_lent(message.mark.word, message.mark.value);
  forget(message);
  return is_valid || message.discards ? sink.on_complete(message) : sink.on_aborted(message);
}

}  // namespace lockstep::rpc
