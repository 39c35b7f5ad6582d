#include "agent/comm/tcp_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "agent/comm/frame.h"
#include "agent/comm/network.h"
#include "common/base/check.h"

namespace lockstep::comm {
namespace {

// From this size on, a system call per piece costs less than the second copy through the buffer.
constexpr size_t kDirectBytes = size_t{16} << 10;
constexpr size_t kLowWaterMax = size_t{128} << 10;

Error gone(int error) {
  if (error == 0) return unavailable("its connection closed");
  return unavailable(std::string("its connection failed: ") + std::strerror(error));
}

}  // namespace

TcpLink::TcpLink(int peer, UniqueFd fd)
    : Link(peer), fd_(std::move(fd)), staging_(std::make_unique_for_overwrite<Staging>()) {
  tune_local_stream(fd_.get());
}

std::string TcpLink::describe() const {
  return describe_connection(fd_.get());
}

Result<size_t> TcpLink::write(std::initializer_list<Bytes> parts) {
  std::array<iovec, 4> pieces{};
  CHECK(parts.size() <= pieces.size());
  size_t count = 0;
  for (const Bytes part : parts) {
    if (part.empty()) continue;
    pieces[count++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  if (count == 0) return size_t{0};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  for (;;) {
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return gone(errno);
  }
}

Result<size_t> TcpLink::receive(std::span<std::byte> into) {
  for (;;) {
    const ssize_t got = ::recv(fd_.get(), into.data(), into.size(), 0);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) return gone(0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return gone(errno);
  }
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
  TRY_ASSIGN(const size_t got, receive({staging_->data + end_, kStagingBytes - end_}));
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
    TRY_ASSIGN(const size_t got, receive(into));
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
  const size_t missing = bytes > staged ? bytes - staged : 1;
  const int low_water = static_cast<int>(std::clamp<size_t>(missing, 1, kLowWaterMax));
  if (low_water == low_water_) return;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
  low_water_ = low_water;
}

}  // namespace lockstep::comm
