#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "agent/comm/link.h"
#include "agent/comm/socket.h"

namespace lockstep {

// A stream over a connected, non-blocking socket, which it closes (finish_sending() in socket.h
// comes first where what was written is to arrive). Large payloads are read straight into their
// place, small ones and what is to be reduced through a buffer of the link's own.
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
  Result<size_t> receive(std::span<std::byte> into);
  Status fill();

  static constexpr size_t kStagingBytes = size_t{256} << 10;
  UniqueFd fd_;
  struct alignas(64) Staging {
    std::byte data[kStagingBytes];
  };
  std::unique_ptr<Staging> staging_;
  size_t begin_ = 0;  // what has come and isn't consumed: [begin_, end_) of staging_
  size_t end_ = 0;
  int low_water_ = 1;
};

}  // namespace lockstep
