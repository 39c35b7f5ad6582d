#include "agent/comm/tcp_link.h"

#include <algorithm>
#include <cstring>

#include "agent/comm/frame.h"
#include "agent/comm/network.h"
#include "common/base/check.h"

namespace lockstep::comm {
namespace {

// From this size on, a system call per piece costs less than the second copy through the buffer.
constexpr size_t kDirectBytes = size_t{16} << 10;

}  // namespace

TcpLink::TcpLink(int peer, UniqueFd fd)
    : Link(peer), fd_(std::move(fd)), staging_(std::make_unique_for_overwrite<Staging>()) {
  tune_local_stream(fd_.get());
}

std::string TcpLink::describe() const {
  return describe_connection(fd_.get());
}

Result<size_t> TcpLink::write(std::initializer_list<Bytes> parts) {
  return send_some(fd_.get(), parts);
}

// Keeps the position in the buffer equal to the position in the stream modulo 64, so that data
// aligned in the stream is aligned in memory.
Status TcpLink::fill() {
  if (begin_ == end_) {
    begin_ = end_ = begin_ % kFrameAlign;
  } else if (begin_ >= kFrameAlign && end_ > kStagingBytes / 2) {
    const size_t to = begin_ % kFrameAlign;
    std::memmove(staging_->data + to, staging_->data + begin_, end_ - begin_);
    end_ = to + (end_ - begin_);
    begin_ = to;
  }
  TRY_ASSIGN(const size_t got,
             receive_some(fd_.get(), {staging_->data + end_, kStagingBytes - end_}));
  end_ += got;
  return {};
}

Result<Bytes> TcpLink::peek(Want want) {
  if (end_ - begin_ < want.at_least) {
    TRY(fill());
    if (end_ - begin_ < want.at_least) return Bytes{};
  }
  return Bytes(staging_->data + begin_, std::min(end_ - begin_, want.at_most));
}

void TcpLink::consume(size_t bytes) {
  CHECK(bytes <= end_ - begin_);
  begin_ += bytes;
}

Result<size_t> TcpLink::read(std::span<std::byte> into) {
  if (begin_ == end_ && into.size() >= kDirectBytes) {
    TRY_ASSIGN(const size_t got, receive_some(fd_.get(), into));
    begin_ = end_ = (begin_ + got) % kFrameAlign;
    return got;
  }
  TRY_ASSIGN(const Bytes piece, peek({.at_least = 1, .at_most = into.size()}));
  if (!piece.empty()) std::memcpy(into.data(), piece.data(), piece.size());
  consume(piece.size());
  return piece.size();
}

void TcpLink::expect(size_t bytes) {
  const size_t staged = end_ - begin_;
  set_low_water(fd_.get(), bytes > staged ? bytes - staged : 1, low_water_);
}

}  // namespace lockstep::comm
