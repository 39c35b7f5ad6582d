#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "agent/server/messages.h"
#include "agent/server/unit_call.h"

namespace lockstep::server {

// A message of the server before this one in a chain. `call` has the parsed body.
struct CopyMessage {
  CopyHead head;
  SharedCall call;
};

// Puts the messages of one view in their order. The sender's windows bound what waits here.
// Single-threaded.
class ChainInbox {
 public:
  // Begins anew for another view: refuses what waits.
  void begin(const Error& refused);
  void add(CopyMessage message);
  // Returns the next message in order, once it is here.
  std::optional<CopyMessage> next();

 private:
  uint64_t next_ = 0;
  std::map<uint64_t, CopyMessage> waiting_;  // by number
};

}  // namespace lockstep::server
