#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/rpc/limits.h"
#include "agent/rpc/wire.h"
#include "common/base/result.h"

namespace lockstep::rpc {

// Names a call: the client, by a random number, and the call's number in it, from 1. A call that a
// client repeats, to the same server or another one, keeps its id.
struct CallId {
  uint64_t client = 0;
  uint64_t number = 0;
  bool operator==(const CallId&) const = default;
};

// The outcome of a call that was executed: its reply, or its error.
struct CallOutcome {
  uint8_t code = 0;  // FrameHeader::code
  uint16_t head_bytes = 0;
  std::string bytes;  // head and body, or the error's text; at most kRememberedReplyMax
};

// Which calls a server has begun and with which outcome, so that it executes each at most once. A
// client says with every request which of its calls are finished, i.e. will not be repeated; those
// are forgotten. It has fewer than kUnfinishedMax unfinished ones, so the memory is bounded.
//
// A replica that takes over for a server needs the same memory: it records what it has been told of
// (begin and finish), or imports what the server exports.
//
// Single-threaded; pure.
class CallMemory {
 public:
  struct Options {
    size_t clients_max = Limits().clients_max;
    size_t bytes_max = Limits().remembered_bytes_max;  // of one client's outcomes
  };
  CallMemory() : CallMemory(Options()) {}
  explicit CallMemory(const Options& options) : options_(options) {}

  enum class Seen {
    kNew,       // now running
    kRunning,   // begun, not finished
    kDone,      // finished; outcome() has the rest
    kFinished,  // the client has said that it will not repeat it
  };
  // Begins the call if it is new. `floor`: all of the client's calls with lower numbers are
  // finished. kCorrupt if the client has more unfinished calls than it may. kUnavailable if there
  // is no room for another client or outcome; the call was not begun.
  Result<Seen> begin(CallId id, uint64_t floor);
  // Null unless kDone. Valid until the next call of a function that is not const.
  const CallOutcome* outcome(CallId id) const;
  // Keeps the outcome of a running call; no-op if the call is not running.
  void finish(CallId id, CallOutcome outcome);
  // Forgets a running call that was not executed.
  void undo(CallId id);
  void forget_client(uint64_t client);

  size_t clients() const { return clients_.size(); }
  size_t bytes() const;

  // The finished calls of all clients, for import_from().
  std::string export_all() const;
  // Adds what another memory has exported, and returns its clients. Calls that are known here stay
  // as they are. kCorrupt, with nothing changed, if it is no export; kUnavailable if there is no
  // room.
  Result<std::vector<uint64_t>> import_from(std::string_view exported);

 private:
  struct Entry {
    bool is_done = false;
    CallOutcome outcome;
  };
  struct Client {
    uint64_t floor = 1;
    size_t bytes = 0;
    std::map<uint64_t, Entry> entries;
  };
  Result<Client*> client_of(uint64_t client);
  static void raise_floor(Client& client, uint64_t floor);

  Options options_;
  std::unordered_map<uint64_t, Client> clients_;
};

}  // namespace lockstep::rpc
