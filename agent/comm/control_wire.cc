#include "agent/comm/control_wire.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "agent/comm/control_message.h"
#include "agent/comm/socket.h"
#include "common/base/check.h"

namespace lockstep::comm {
namespace {

// A full socket means that the peer's control thread is stuck, an error that the peer has ended.
// Both are detected by reading, or by the peer's silence.
bool send_whole(int fd, std::span<const std::byte> bytes) {
  const Result<size_t> sent = send_some(fd, {bytes});
  return sent.ok() && *sent == bytes.size();
}

class PlainWire final : public ControlWire {
 public:
  explicit PlainWire(int fd) : fd_(fd) {}
  bool send(std::span<const std::byte> message) override { return send_whole(fd_, message); }
  Result<size_t> receive(std::span<std::byte> into) override { return receive_some(fd_, into); }

 private:
  int fd_;
};

class SealedWire final : public ControlWire {
 public:
  SealedWire(int fd, const SessionSecrets& secrets)
      : fd_(fd), sealer_(secrets.sent), opener_(secrets.received) {}

  bool send(std::span<const std::byte> message) override {
    CHECK(message.size() <= ControlBytes::kMost);
    const std::array<Bytes, 1> parts{message};
    const Result<size_t> size = sealer_.seal(parts, sealed_.data());
    return size.ok() && send_whole(fd_, std::span(sealed_).first(*size));
  }

  Result<size_t> receive(std::span<std::byte> into) override {
    while (opened_begin_ == opened_end_) {
      TRY_ASSIGN(const bool opened, open_next());
      if (!opened) return size_t{0};
    }
    const size_t bytes = std::min(into.size(), opened_end_ - opened_begin_);
    std::memcpy(into.data(), opened_.data() + opened_begin_, bytes);
    opened_begin_ += bytes;
    return bytes;
  }

 private:
  static constexpr size_t kRecordMax = ControlBytes::kMost + kRecordOverheadBytes;

  // Opens the next record; false if it is not here yet.
  Result<bool> open_next() {
    size_t needed = kRecordHeadBytes;
    for (;;) {
      if (held_ >= kRecordHeadBytes) {
        TRY_ASSIGN(needed, RecordOpener::size_of(Bytes(received_).first(held_)));
        if (needed > kRecordMax) return corrupt("sent a control message that is too long");
      }
      if (held_ >= kRecordHeadBytes && held_ == needed) break;
      TRY_ASSIGN(const size_t got,
                 receive_some(fd_, std::span(received_).subspan(held_, needed - held_)));
      if (got == 0) return false;
      held_ += got;
    }
    TRY(opener_.open(Bytes(received_).first(held_), opened_.data()));
    opened_begin_ = 0;
    opened_end_ = RecordOpener::payload_of(held_);
    held_ = 0;
    return true;
  }

  int fd_;
  RecordSealer sealer_;
  std::array<std::byte, kRecordMax> sealed_{};
  RecordOpener opener_;
  std::array<std::byte, kRecordMax> received_{};
  size_t held_ = 0;
  std::array<std::byte, ControlBytes::kMost> opened_{};
  size_t opened_begin_ = 0;
  size_t opened_end_ = 0;
};

}  // namespace

std::unique_ptr<ControlWire> make_plain_wire(int fd) {
  return std::make_unique<PlainWire>(fd);
}

std::unique_ptr<ControlWire> make_sealed_wire(int fd, const SessionSecrets& secrets) {
  return std::make_unique<SealedWire>(fd, secrets);
}

}  // namespace lockstep::comm
