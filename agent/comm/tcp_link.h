#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "agent/comm/link.h"
#include "agent/comm/socket.h"

namespace lockstep::comm {

// A stream over a connected, non-blocking socket, which it closes; call finish_sending() of
// socket.h first if written data has to arrive. Reads large payloads directly into their place.
// Small ones, and data to be reduced, go through a buffer of the link.
class TcpLink final : public Link {
 public:
  TcpLink(int peer, UniqueFd fd);

  Result<size_t> write(std::initializer_list<Bytes> parts) override;
  Result<Bytes> peek(Want want) override;
  void consume(size_t bytes) override;
  Result<size_t> read(std::span<std::byte> into) override;
  int fd() const override { return fd_.get(); }
  std::string describe() const override;
  void expect(size_t bytes) override;

 private:
  Status fill();

  static constexpr size_t kStagingBytes = size_t{256} << 10;
  UniqueFd fd_;
  struct alignas(64) Staging {
    std::byte data[kStagingBytes];
  };
  std::unique_ptr<Staging> staging_;
  size_t begin_ = 0;  // received and not consumed: [begin_, end_) of staging_
  size_t end_ = 0;
  int low_water_ = 1;
};

}  // namespace lockstep::comm
