#pragma once

#include <string>

#include "common/base/clock.h"

namespace lockstep::http {

// The body of a response that is produced over time, such as a watch. The server asks for the next
// chunk only after the client has accepted the one before, so a slow client costs one chunk of
// memory, twice while it is framed. The connection ends with its stream. While it lasts, the client
// must not send: bytes that arrive end the stream, and bytes that came with the request are
// ignored.
class Stream {
 public:
  struct Chunk {
    std::string bytes{};   // empty: nothing yet
    bool is_last = false;  // the body ends after these bytes
    // If there are no bytes: when to ask again, unless Server::wake_streams() comes first.
    TimePoint again = TimePoint::max();
  };

  // Destroyed when the body or the connection has ended, usually by the server's thread.
  virtual ~Stream() = default;
  // Runs on the server's thread and must not block. The implementation bounds the bytes.
  virtual Chunk next() = 0;
};

}  // namespace lockstep::http
