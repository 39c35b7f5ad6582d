#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/server/client_history.h"
#include "agent/server/history.h"
#include "tests/agent/server/history.h"

namespace lockstep::test {

// A ClientEvent that owns its memory, and when it was.
struct ToldEvent {
  server::ClientEvent::Kind kind = server::ClientEvent::Kind::kPull;
  server::UnitId unit;
  uint64_t clock = 0;
  server::ReplyHead reply;
  std::vector<uint64_t> keys;
  std::vector<float> values;
  std::chrono::steady_clock::time_point at;
};

// A file of events that a process appends to. A process that is killed leaves all events but,
// maybe, a part of the last one, which readers pass over.
class EventFile {
 public:
  explicit EventFile(const std::string& path);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void append(const server::HistoryEvent& event);
  void append(const server::ClientEvent& event);

 private:
  void append(const std::string& record);
  int fd_ = -1;
};

std::vector<KeptEvent> read_history(const std::string& path);
std::vector<ToldEvent> read_told(const std::string& path);

}  // namespace lockstep::test
