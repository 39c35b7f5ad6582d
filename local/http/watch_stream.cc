#include "local/http/watch_stream.h"

#include <utility>

namespace lockstep::local {
namespace {

constexpr size_t kEventsPerChunk = 64;
constexpr size_t kEventsPerCall = 8;
constexpr size_t kWatchChunkBytes = 1u << 20;  // a chunk ends after the call that exceeds it

TimePoint steady_now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

WatchStream::WatchStream(Api& api, Watch watch, Duration bookmark_interval,
                         std::shared_ptr<void> open)
    : api_(api),
      watch_(std::move(watch)),
      bookmark_interval_(bookmark_interval),
      open_(std::move(open)),
      end_(steady_now() + std::chrono::seconds(watch_.timeout_seconds)),
      next_bookmark_(steady_now() + bookmark_interval) {}

std::string WatchStream::next_events() {
  std::string text;
  for (size_t count = 0; count < kEventsPerChunk && text.size() < kWatchChunkBytes;) {
    const std::vector<Json> events = api_.next_events(watch_, kEventsPerCall);
    if (events.empty()) break;
    for (const Json& event : events) text += dump_json(event) + "\n";
    count += events.size();
  }
  return text;
}

http::Stream::Chunk WatchStream::next() {
  Chunk chunk{.bytes = next_events()};
  const TimePoint now = steady_now();
  const bool over = now >= end_;
  if (chunk.bytes.empty() && watch_.bookmarks && !watch_.ended && (over || now >= next_bookmark_)) {
    chunk.bytes = dump_json(api_.bookmark(watch_)) + "\n";
    next_bookmark_ = now + bookmark_interval_;
  }
  chunk.is_last = watch_.ended || over;
  chunk.again = wake_time(end_, next_bookmark_, watch_.bookmarks);
  return chunk;
}

}  // namespace lockstep::local
