#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "agent/comm/records.h"
#include "common/base/result.h"

namespace lockstep::comm {

// How the messages of a control connection travel. One thread may send while another one receives.
class ControlWire {
 public:
  virtual ~ControlWire() = default;
  // Sends a message, of at most ControlBytes::kMost bytes, without waiting. False if it was not
  // sent as a whole: then nothing more can be sent.
  virtual bool send(std::span<const std::byte> message) = 0;
  // Returns how many bytes of the stream it has put there; 0 if there are none yet. kUnavailable:
  // the other side has closed. kCorrupt, in words that follow a rank's name: it is not authentic.
  virtual Result<size_t> receive(std::span<std::byte> into) = 0;
};

// Over a connected, non-blocking socket, which outlives the wire.
std::unique_ptr<ControlWire> make_plain_wire(int fd);
// The same in records (records.h), one for each message.
std::unique_ptr<ControlWire> make_sealed_wire(int fd, const SessionSecrets& secrets);

}  // namespace lockstep::comm
