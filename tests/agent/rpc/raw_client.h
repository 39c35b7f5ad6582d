#pragma once

#include <cstddef>
#include <vector>

#include "agent/comm/socket.h"
#include "agent/rpc/wire.h"

namespace lockstep::test {

// A connection to a server that has the key, and says whatever the test wants.
class RawClient {
 public:
  explicit RawClient(int port, uint32_t rank = 0);
  void say(const rpc::FrameHeader& header, rpc::Bytes payload = {});
  void say_bytes(rpc::Bytes bytes);
  // Opens a session.
  void open(uint64_t client, uint32_t session = rpc::kSessionBegun);
  // Returns the next frame that is not a ping, and its payload; nothing once the server has closed.
  struct Heard {
    rpc::FrameHeader header;
    std::vector<std::byte> payload;
  };
  std::vector<Heard> hear();
  // Waits until the server closes; false if it does not.
  bool is_ended();
  void shut() { fd_.reset(); }

 private:
  bool receive(std::span<std::byte> into);
  comm::UniqueFd fd_;
};

}  // namespace lockstep::test
