#include "agent/comm/port.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "agent/comm/loans.h"
#include "agent/comm/words.h"
#include "common/base/check.h"

namespace lockstep {
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
  going_ = header;
  going_payload_ = payload;
  const size_t in_link = payload_in_link(header);
  going_bytes_ = kFrameAlign + in_link + padding_of(in_link);
  sent_ = 0;
}

uint64_t Port::begin_loan(const void* sender, FrameHeader header, const std::byte* payload) {
  header.magic = FrameHeader::kLoanMagic;
  begin(sender, header, nullptr);
  return link_->loans()->lend({payload, header.bytes});
}

Result<bool> Port::push() {
  const size_t in_link = payload_in_link(going_);
  const size_t payload_end = kFrameAlign + in_link;
  bool moved = false;
  while (sent_ < going_bytes_) {
    Bytes head;
    if (sent_ < kFrameAlign) head = std::as_bytes(std::span(&going_, 1)).subspan(sent_);
    const size_t body_begin = std::clamp(sent_, kFrameAlign, payload_end) - kFrameAlign;
    const Bytes body(going_payload_ + body_begin, in_link - body_begin);
    const Bytes tail = Bytes(kZeros).first(going_bytes_ - std::max(sent_, payload_end));
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
    std::memcpy(&coming_, head.data(), sizeof coming_);
    link_->consume(kFrameAlign);
    if (is_credit(coming_)) {
      TRY(note_credit());
      continue;
    }
    TRY(check_frame(coming_, options_.limits, link_->peer()));
    if (is_loan(coming_) && link_->loans() == nullptr) {
      return corrupt(rank_name(link_->peer()) + " lends what can't be read from here");
    }
    if (is_loan(coming_)) ++loans_come_;
    have_header_ = true;
    payload_left_ = coming_.bytes;
  }
  return true;
}

Status Port::note_credit() {
  const std::string who = rank_name(link_->peer());
  if (coming_.bytes > 0) return corrupt(who + " sent a credit with a payload");
  for (FrameHeader& known : credits_) {
    const uint64_t before = std::exchange(known.total, coming_.total);
    if (known == coming_) return {};
    known.total = before;
  }
  if (credits_.size() >= kCreditsMax) {
    return corrupt(who + " sent credits of operations that are not under way");
  }
  credits_.push_back(coming_);
  return {};
}

Result<size_t> Port::credit(const FrameHeader& operation, size_t allowed) {
  TRY_ASSIGN(const bool there, read_header());
  if (there) {
    TRY(check_round(coming_, operation.round, link_->peer()));
    in_the_way_ = true;
  }
  for (auto credit = credits_.begin(); credit != credits_.end(); ++credit) {
    FrameHeader expected = operation;
    expected.step = kCreditStep;
    expected.total = credit->total;
    TRY_ASSIGN(const Belonging found, belonging(expected, *credit, link_->peer()));
    if (found == Belonging::kElsewhere) continue;
    allowed = std::max<size_t>(allowed, credit->total);
    credits_.erase(credit);
    break;
  }
  return allowed;
}

Port::Row Port::row_of(const FrameHeader& header) {
  const bool is_message = header.kind == Collective::kSend;
  return {.group = header.group,
          .is_message = is_message,
          .sequence = is_message ? header.sequence : 0};
}

// All that has arrived of the last frame may be taken already; its rest is in the link.
Port::Aside* Port::first_aside(const FrameHeader& expected) {
  const auto row = aside_rows_.find(row_of(expected));
  if (row == aside_rows_.end()) return nullptr;
  Aside* first = row->second.front();
  return first == filling_ && first->taken == first->held ? nullptr : first;
}

Result<Port::Next> Port::look(const FrameHeader& expected) {
  if (Aside* aside = aside_.empty() ? nullptr : first_aside(expected); aside != nullptr) {
    TRY_ASSIGN(const Belonging found, belonging(expected, aside->header, link_->peer()));
    CHECK(found == Belonging::kOurs);
    source_ = {.aside = aside, .left = aside->held - aside->taken};
    return Next::kOurs;
  }
  TRY_ASSIGN(const bool there, read_header());
  if (!there) return Next::kNone;
  TRY_ASSIGN(const Belonging found, belonging(expected, coming_, link_->peer()));
  if (found == Belonging::kElsewhere) {
    in_the_way_ = true;
    return Next::kElsewhere;
  }
  source_ = {.aside = nullptr, .left = payload_left_};
  return Next::kOurs;
}

Result<Bytes> Port::peek(size_t at_least, size_t at_most) {
  if (source_.aside != nullptr) {
    const Aside& aside = *source_.aside;
    return Bytes(aside.data() + aside.taken, std::min(at_most, source_.left));
  }
  return link_->peek({.at_least = at_least, .at_most = std::min(at_most, source_.left)});
}

// Drops a frame that is the first of its row.
void Port::drop(const Aside& aside) {
  aside_bytes_ -= aside.capacity + kAsideFrameBytes;
  if (filling_ == &aside) filling_ = nullptr;
  const auto row = aside_rows_.find(row_of(aside.header));
  CHECK(row != aside_rows_.end() && row->second.front() == &aside);
  row->second.pop_front();
  if (row->second.empty()) aside_rows_.erase(row);
  const uint64_t number = aside.number;
  aside_.erase(number);
  source_ = {};
}

Status Port::consume(size_t bytes) {
  CHECK(bytes <= source_.left);
  source_.left -= bytes;
  if (source_.aside != nullptr) {
    source_.aside->taken += bytes;
    if (source_.left == 0) drop(*source_.aside);
    return {};
  }
  link_->consume(bytes);
  payload_left_ -= bytes;
  return payload_left_ == 0 ? finish_empty() : Status();
}

Result<size_t> Port::read(std::span<std::byte> into) {
  const size_t wanted = std::min(into.size(), source_.left);
  if (source_.aside != nullptr) {
    std::memcpy(into.data(), source_.aside->data() + source_.aside->taken, wanted);
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
  const size_t at = coming_.bytes - payload_left_;
  TRY_ASSIGN(const size_t got,
             loans.read(loans_come_, at, into.first(std::min(into.size(), kLoanPiece))));
  payload_left_ = got == 0 ? 0 : payload_left_ - got;
  if (payload_left_ == 0) TRY(loans.give_back(loans_come_, at + got));
  return got;
}

Status Port::finish_empty() {
  if (source_.aside != nullptr) {
    drop(*source_.aside);
    return {};
  }
  CHECK(have_header_ && payload_left_ == 0);
  have_header_ = false;
  // The frame's beginning was put aside, and taken from there before the rest.
  if (filling_ != nullptr) drop(*filling_);
  source_ = {};
  padding_left_ = padding_of(payload_in_link(coming_));
  return skip_padding();
}

size_t Port::missing() const {
  if (have_header_) return payload_left_ + padding_of(coming_.bytes);
  return padding_left_ + kFrameAlign;
}

Error Port::too_much_aside() const {
  const FrameHeader& first = aside_.empty() ? coming_ : aside_.begin()->second.header;
  return conflict("behind " + std::to_string(aside_bytes_ >> 10) + " KiB that " +
                  rank_name(link_->peer()) + " has sent and that can't be taken here yet, of " +
                  describe(first) + " and others: no more than " +
                  std::to_string(aside_bytes_max(options_.limits) >> 10) + " KiB are kept");
}

// Makes the entry for the frame that is first in the link.
Port::Aside& Port::begin_aside() {
  Aside& aside = aside_[++asides_];
  aside.number = asides_;
  aside.header = coming_;
  aside.capacity = payload_left_;
  aside.memory =
      std::make_unique_for_overwrite<Line[]>((payload_left_ + kFrameAlign - 1) / kFrameAlign);
  aside_rows_[row_of(coming_)].push_back(&aside);
  return aside;
}

Result<bool> Port::put_aside() {
  in_the_way_ = false;
  TRY_ASSIGN(const bool there, read_header());
  if (!there) return false;
  const bool begins = filling_ == nullptr;
  if (begins) {
    const size_t cost = payload_left_ + kAsideFrameBytes;
    if (aside_bytes_ + cost > aside_bytes_max(options_.limits)) return too_much_aside();
    aside_bytes_ += cost;
    filling_ = &begin_aside();
  }
  Aside& aside = *filling_;
  bool moved = begins;
  // Whole elements, because a reduction takes each element from one place.
  const size_t element = std::max<size_t>(1, data_type_bytes(coming_.type));
  if (payload_left_ > 0 && is_loan(coming_)) {
    TRY_ASSIGN(const size_t got, borrow({aside.data() + aside.held, payload_left_}));
    aside.held += got;
    if (payload_left_ > 0) return true;
  }
  while (payload_left_ > 0) {
    const size_t least = std::min(element, payload_left_);
    TRY_ASSIGN(const Bytes piece, link_->peek({.at_least = least, .at_most = payload_left_}));
    if (piece.empty()) return moved;
    const bool all = piece.size() == payload_left_;
    const size_t whole = all ? piece.size() : piece.size() - piece.size() % element;
    std::memcpy(aside.data() + aside.held, piece.data(), whole);
    link_->consume(whole);
    aside.held += whole;
    payload_left_ -= whole;
    moved = true;
  }
  filling_ = nullptr;
  source_ = {};
  TRY(finish_empty());
  return true;
}

}  // namespace lockstep
