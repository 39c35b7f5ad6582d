#include "agent/comm/sealed_link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "agent/comm/frame.h"
#include "agent/comm/message_text.h"
#include "agent/comm/network.h"
#include "common/base/check.h"

namespace lockstep::comm {
namespace {

// If at least this much follows a frame's header, the header is a record of its own, so that the
// receiver decrypts the payload directly to its place.
constexpr size_t kOwnRecordBytes = size_t{16} << 10;

constexpr size_t kPartsMax = 4;

// A record's share of the parts of a write.
class Cut {
 public:
  explicit Cut(std::initializer_list<Bytes> parts) {
    CHECK(parts.size() <= kPartsMax);
    for (const Bytes part : parts) {
      if (!part.empty()) left_[count_++] = part;
      total_ += part.size();
    }
  }
  size_t total() const { return total_; }
  size_t first_part() const { return count_ == 0 ? 0 : left_[0].size(); }

  // Takes that many bytes off the front.
  std::span<const Bytes> take(size_t bytes) {
    size_t taken = 0;
    for (size_t i = 0; i < count_; ++i) {
      const size_t share = std::min(bytes, left_[i].size());
      if (share > 0) taken_[taken++] = left_[i].first(share);
      left_[i] = left_[i].subspan(share);
      bytes -= share;
      total_ -= share;
    }
    return std::span(taken_).first(taken);
  }

 private:
  std::array<Bytes, kPartsMax> left_;
  std::array<Bytes, kPartsMax> taken_;
  size_t count_ = 0;
  size_t total_ = 0;
};

}  // namespace

SealedLink::SealedLink(int peer, UniqueFd fd, const SessionSecrets& secrets)
    : Link(peer),
      fd_(std::move(fd)),
      sealer_(secrets.sent),
      opener_(secrets.received),
      buffers_(std::make_unique_for_overwrite<Buffers>()) {
  tune_local_stream(fd_.get());
}

std::string SealedLink::describe() const {
  return describe_connection(fd_.get()) + ", encrypted";
}

Status SealedLink::seal(std::initializer_list<Bytes> parts) {
  Cut cut(parts);
  if (cut.total() == 0) return {};
  const bool has_own_record =
      cut.first_part() <= kFrameAlign && cut.total() >= cut.first_part() + kOwnRecordBytes;
  sealed_begin_ = sealed_end_ = sealed_payload_ = 0;
  const auto add = [&](size_t bytes) -> Status {
    TRY_ASSIGN(const size_t record, sealer_.seal(cut.take(bytes), buffers_->sealed + sealed_end_));
    sealed_end_ += record;
    sealed_payload_ += bytes;
    return {};
  };
  if (has_own_record) TRY(add(cut.first_part()));
  return add(std::min(cut.total(), kRecordPayloadMax));
}

// Sealed bytes are not sealed again: until all of them are sent, the caller offers the same ones.
Result<size_t> SealedLink::write(std::initializer_list<Bytes> parts) {
  if (sealed_begin_ == sealed_end_) TRY(seal(parts));
  while (sealed_begin_ < sealed_end_) {
    const Bytes left(buffers_->sealed + sealed_begin_, sealed_end_ - sealed_begin_);
    TRY_ASSIGN(const size_t sent, send_some(fd_.get(), {left}));
    if (sent == 0) return size_t{0};
    sealed_begin_ += sent;
  }
  return std::exchange(sealed_payload_, size_t{0});
}

Error SealedLink::named(const Error& error) const {
  if (error.code != Code::kCorrupt) return error;
  return corrupt(rank_name(peer()) + " " + error.message);
}

// Returns a record that is here as a whole; nothing if there is none yet.
Result<Bytes> SealedLink::next_record() {
  std::byte* const received = buffers_->received;
  for (;;) {
    const size_t held = received_end_ - received_begin_;
    size_t needed = kRecordHeadBytes;
    if (held >= kRecordHeadBytes) {
      const auto size = RecordOpener::size_of(Bytes(received + received_begin_, held));
      if (!size.ok()) return named(size.error());
      needed = *size;
      if (held >= needed) return Bytes(received + received_begin_, needed);
    }
    if (held == 0 || received_begin_ + needed > sizeof(Buffers::received)) {
      std::memmove(received, received + received_begin_, held);
      received_begin_ = 0;
      received_end_ = held;
    }
    TRY_ASSIGN(const size_t got,
               receive_some(fd_.get(),
                            {received + received_end_, sizeof(Buffers::received) - received_end_}));
    if (got == 0) return Bytes{};
    received_end_ += got;
  }
}

Status SealedLink::take(Bytes record, std::byte* into) {
  const Status opened = opener_.open(record, into);
  if (!opened.ok()) return named(opened.error());
  received_begin_ += record.size();
  return {};
}

// Opens the next record behind what is staged; false if it is not here yet.
Result<bool> SealedLink::stage_record() {
  TRY_ASSIGN(const Bytes record, next_record());
  if (record.empty()) return false;
  const size_t payload = RecordOpener::payload_of(record.size());
  if (staged_end_ + payload > kStagedMax) {
    const size_t to = staged_begin_ % kFrameAlign;
    std::memmove(buffers_->staged + to, buffers_->staged + staged_begin_,
                 staged_end_ - staged_begin_);
    staged_end_ = to + (staged_end_ - staged_begin_);
    staged_begin_ = to;
  }
  CHECK(staged_end_ + payload <= kStagedMax);
  TRY(take(record, buffers_->staged + staged_end_));
  staged_end_ += payload;
  return true;
}

Result<Bytes> SealedLink::peek(Want want) {
  CHECK(want.at_least <= kRecordPayloadMax);
  while (staged_end_ - staged_begin_ < want.at_least) {
    TRY_ASSIGN(const bool staged, stage_record());
    if (!staged) return Bytes{};
  }
  return Bytes(buffers_->staged + staged_begin_,
               std::min(staged_end_ - staged_begin_, want.at_most));
}

void SealedLink::consume(size_t bytes) {
  CHECK(bytes <= staged_end_ - staged_begin_);
  staged_begin_ += bytes;
  if (staged_begin_ == staged_end_) staged_begin_ = staged_end_ = staged_begin_ % kFrameAlign;
}

Result<size_t> SealedLink::read(std::span<std::byte> into) {
  if (staged_begin_ == staged_end_) {
    TRY_ASSIGN(const Bytes record, next_record());
    if (record.empty()) return size_t{0};
    const size_t payload = RecordOpener::payload_of(record.size());
    if (payload <= into.size()) {
      TRY(take(record, into.data()));
      staged_begin_ = staged_end_ = (staged_begin_ + payload) % kFrameAlign;
      return payload;
    }
  }
  TRY_ASSIGN(const Bytes piece, peek({.at_least = 1, .at_most = into.size()}));
  if (!piece.empty()) std::memcpy(into.data(), piece.data(), piece.size());
  consume(piece.size());
  return piece.size();
}

// Nothing of a record can be used before its last byte: waits for the rest of the one that has
// begun, or for as long a one as the bytes allow.
void SealedLink::expect(size_t bytes) {
  const size_t held = received_end_ - received_begin_;
  const size_t staged = staged_end_ - staged_begin_;
  size_t needed = 1;
  if (held >= kRecordHeadBytes) {
    const auto size = RecordOpener::size_of(Bytes(buffers_->received + received_begin_, held));
    if (size.ok() && *size > held) needed = *size - held;
  } else if (bytes > staged) {
    const size_t record = std::min(bytes - staged, kRecordPayloadMax) + kRecordOverheadBytes;
    needed = record - held;
  }
  set_low_water(fd_.get(), needed, low_water_);
}

}  // namespace lockstep::comm
