#include "tests/agent/server/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>

#include "common/base/check.h"

namespace lockstep::test {
namespace {

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
void put_all(std::string& out, std::span<const T> values) {
  put(out, uint64_t{values.size()});
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

template <class T>
void take(std::string_view& in, T& value) {
  CHECK(in.size() >= sizeof value);
  std::memcpy(static_cast<void*>(&value), in.data(), sizeof value);
  in.remove_prefix(sizeof value);
}

template <class T>
void take_all(std::string_view& in, std::vector<T>& values) {
  uint64_t count = 0;
  take(in, count);
  values.resize(count);
  CHECK(in.size() >= count * sizeof(T));
  if (count > 0) std::memcpy(values.data(), in.data(), count * sizeof(T));
  in.remove_prefix(count * sizeof(T));
}

// Calls use(record) for each whole record.
template <class Use>
void for_records(const std::string& path, const Use& use) {
  std::ifstream in(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::string_view rest(all);
  while (rest.size() >= sizeof(uint64_t)) {
    uint64_t bytes = 0;
    take(rest, bytes);
    if (bytes > rest.size()) return;
    use(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
  }
}

}  // namespace

EventFile::EventFile(const std::string& path)
    : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  CHECK(fd_ >= 0);
}

EventFile::~EventFile() {
  ::close(fd_);
}

void EventFile::append(const std::string& record) {
  std::string bytes;
  put(bytes, uint64_t{record.size()});
  bytes += record;
  CHECK(::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

void EventFile::append(const server::HistoryEvent& event) {
  std::string record;
  put(record, event.kind);
  put(record, event.unit);
  for (const uint64_t number : {event.view, event.sequence, event.now, uint64_t{event.worker},
                                event.clock, event.slowest}) {
    put(record, number);
  }
  put(record, event.learning_rate);
  put_all(record, event.keys);
  put_all(record, event.values);
  put_all(record, event.workers);
  put(record, uint64_t{event.gradients.size()});
  for (const server::Gradient& gradient : event.gradients) {
    put_all(record, gradient.keys);
    put_all(record, gradient.values);
  }
  append(record);
}

std::vector<KeptEvent> read_history(const std::string& path) {
  std::vector<KeptEvent> events;
  for_records(path, [&](std::string_view record) {
    KeptEvent kept;
    server::HistoryEvent& event = kept.event;
    take(record, event.kind);
    take(record, event.unit);
    uint64_t worker = 0;
    for (uint64_t* const number :
         {&event.view, &event.sequence, &event.now, &worker, &event.clock, &event.slowest}) {
      take(record, *number);
    }
    event.worker = static_cast<uint32_t>(worker);
    take(record, event.learning_rate);
    take_all(record, kept.keys);
    take_all(record, kept.values);
    take_all(record, kept.workers);
    uint64_t gradients = 0;
    take(record, gradients);
    kept.gradients.resize(gradients);
    for (KeptEvent::Gradient& gradient : kept.gradients) {
      take_all(record, gradient.keys);
      take_all(record, gradient.values);
    }
    events.push_back(std::move(kept));
  });
  return events;
}

void EventFile::append(const server::ClientEvent& event) {
  std::string record;
  put(record, event.kind);
  put(record, event.unit);
  put(record, event.clock);
  put(record, event.reply);
  put(record, std::chrono::steady_clock::now());
  put_all(record, event.keys);
  put_all(record, event.values);
  append(record);
}

std::vector<ToldEvent> read_told(const std::string& path) {
  std::vector<ToldEvent> events;
  for_records(path, [&](std::string_view record) {
    ToldEvent told;
    take(record, told.kind);
    take(record, told.unit);
    take(record, told.clock);
    take(record, told.reply);
    take(record, told.at);
    take_all(record, told.keys);
    take_all(record, told.values);
    events.push_back(std::move(told));
  });
  return events;
}

}  // namespace lockstep::test
