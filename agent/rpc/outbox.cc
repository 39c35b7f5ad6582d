#include "agent/rpc/outbox.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/check.h"

namespace lockstep::rpc {
namespace {

// Frames are collected up to this size. Pieces of at least kDirectMin are not copied.
constexpr size_t kStagedMax = size_t{64} << 10;
constexpr size_t kDirectMin = size_t{16} << 10;
// Large messages go on while there is this much room; half of the room is theirs.
constexpr size_t kRoomMin = size_t{4} << 10;
// A message's last frame is always copied, so that no message is complete while its memory is still
// used: it can be given up until then.
constexpr size_t kTailBytes = kFrameAlign;

constexpr std::array<std::byte, 4096> kZeros{};

}  // namespace

void OutMessage::clear() {
  header = {};
  head.clear();
  body.clear();
  part = at = 0;
  left = 0;
  has_begun = is_queued = false;
}

void Outbox::add(OutMessage* message) {
  CHECK(!message->is_queued);
  message->left = bytes_in(message->body);
  added_bytes_ += sizeof(FrameHeader) + message->header.total;
  message->part = message->at = 0;
  message->has_begun = false;
  message->is_queued = true;
  (is_small(*message) ? small_ : large_).push_back(message);
}

bool Outbox::is_small(const OutMessage& message) const {
  return message.left <= kDirectMin && message.left + message.head.size() <= frame_bytes_max_;
}

void Outbox::add_control(const FrameHeader& header, Bytes payload) {
  FrameHeader whole = header;
  whole.bytes = static_cast<uint32_t>(payload.size());
  stage_frame(whole, payload);
}

bool Outbox::is_empty() const {
  return small_.empty() && large_.empty() && controls_.empty() && staged_sent_ == staged_.size() &&
         direct_.empty() && zeros_ == 0;
}

void Outbox::drop(OutMessage* message) {
  if (!message->is_queued) return;
  const bool has_begun = message->has_begun;
  if (direct_of_ == message) {
    direct_of_ = nullptr;
    zeros_ += std::exchange(direct_, Bytes()).size();
  }
  std::erase(small_, message);
  std::erase(large_, message);
  message->is_queued = false;
  if (has_begun) add_control({.kind = FrameKind::kAbort, .call = message->header.call});
}

void Outbox::stage(Bytes bytes) {
  staged_.insert(staged_.end(), bytes.begin(), bytes.end());
}

// The header, the payload, and its padding.
void Outbox::stage_frame(FrameHeader header, Bytes payload) {
  stage(std::as_bytes(std::span(&header, 1)));
  stage(payload);
  staged_.resize(staged_.size() + padding_of(header.bytes));
}

size_t Outbox::staged_room() const {
  return staged_.size() >= kStagedMax ? 0 : kStagedMax - staged_.size();
}

// Copies the next bytes of the body to what is staged.
void Outbox::copy_body(OutMessage& message, size_t bytes) {
  message.left -= bytes;
  while (bytes > 0) {
    const Bytes rest = message.body[message.part].subspan(message.at);
    const size_t n = std::min(bytes, rest.size());
    stage(rest.first(n));
    bytes -= n;
    message.at += n;
    if (n == rest.size()) {
      ++message.part;
      message.at = 0;
    }
  }
}

// The next frame of a message that has begun: a large piece directly, else as much as can be
// staged.
void Outbox::compose_more(OutMessage& message) {
  while (message.body[message.part].size() == message.at) {
    ++message.part;
    message.at = 0;
  }
  const Bytes rest = message.body[message.part].subspan(message.at);
  FrameHeader header{.kind = FrameKind::kMore, .call = message.header.call};
  if (rest.size() >= kDirectMin) {
    const size_t n = std::min<size_t>(
        rest.size() == message.left ? rest.size() - kTailBytes : rest.size(), frame_bytes_max_);
    header.bytes = static_cast<uint32_t>(n);
    stage(std::as_bytes(std::span(&header, 1)));
    direct_ = rest.first(n);
    direct_of_ = &message;
    zeros_ = padding_of(n);
    message.left -= n;
    message.at += n;
    return;
  }
  // Stops before the next large part, which goes directly.
  uint64_t small = rest.size();
  for (size_t i = message.part + 1; i < message.body.size(); ++i) {
    if (message.body[i].size() >= kDirectMin || small >= kStagedMax) break;
    small += message.body[i].size();
  }
  const auto n = static_cast<size_t>(std::min<uint64_t>({small, staged_room(), frame_bytes_max_}));
  header.bytes = static_cast<uint32_t>(n);
  stage(std::as_bytes(std::span(&header, 1)));
  copy_body(message, n);
  staged_.resize(staged_.size() + padding_of(n));
}

// Composes the first frame, with the whole message if it is a small one.
void Outbox::compose_first(OutMessage& message) {
  message.has_begun = true;
  FrameHeader header = message.header;
  const size_t body = is_small(message) ? static_cast<size_t>(message.left) : 0;
  header.bytes = static_cast<uint32_t>(message.head.size() + body);
  stage(std::as_bytes(std::span(&header, 1)));
  stage(message.head);
  if (body > 0) copy_body(message, body);
  staged_.resize(staged_.size() + padding_of(header.bytes));
}

// The first message of the queue is composed as a whole, and needs its memory no more.
void Outbox::finish(std::deque<OutMessage*>& queue) {
  queue.front()->is_queued = false;
  sent_.push_back(queue.front());
  queue.pop_front();
}

// Collects small messages, and then frames of a large one until a piece has to go directly. Returns
// false if there are none.
bool Outbox::compose() {
  if (staged_sent_ == staged_.size()) {
    staged_.clear();
    staged_sent_ = 0;
  }
  for (const FrameHeader& header : controls_) stage_frame(header, {});
  controls_.clear();
  while (!small_.empty() && staged_.size() < kStagedMax / 2) {
    compose_first(*small_.front());
    finish(small_);
  }
  while (!large_.empty() && direct_.empty() && staged_room() >= kRoomMin) {
    OutMessage& message = *large_.front();
    if (message.has_begun) {
      compose_more(message);
    } else {
      compose_first(message);
    }
    if (message.left == 0) finish(large_);
  }
  return !staged_.empty();
}

Result<bool> Outbox::flush(comm::Link& link, size_t budget) {
  added_bytes_ = 0;
  for (size_t written = 0;;) {
    const bool has_output = staged_sent_ < staged_.size() || !direct_.empty() || zeros_ > 0;
    if (!has_output && !compose()) return true;
    if (written >= budget) return false;
    const Bytes staged = Bytes(staged_).subspan(staged_sent_);
    const size_t zeros = std::min(zeros_, kZeros.size());
    TRY_ASSIGN(const size_t n, link.write({staged, direct_, Bytes(kZeros).first(zeros)}));
    if (n == 0) return false;
    written += n;
    size_t rest = n;
    const size_t from_staged = std::min(rest, staged.size());
    staged_sent_ += from_staged;
    rest -= from_staged;
    const size_t from_direct = std::min(rest, direct_.size());
    direct_ = direct_.subspan(from_direct);
    zeros_ -= rest - from_direct;
    if (direct_.empty()) direct_of_ = nullptr;
  }
}

}  // namespace lockstep::rpc
