#pragma once

#include <algorithm>
#include <memory>

#include "common/http/stream.h"
#include "local/store/api.h"

namespace lockstep::local {

// Returns when a watch must wake even if nothing changes: at its end or, if its client asked for
// bookmarks, at the next bookmark.
inline TimePoint wake_time(TimePoint end, TimePoint next_bookmark, bool bookmarks) {
  return bookmarks ? std::min(end, next_bookmark) : end;
}

// The events of a watch, one JSON document a line. Ends when the watch does or after its time.
class WatchStream final : public http::Stream {
 public:
  // `api` must outlive the stream. `open` is held until its end.
  WatchStream(Api& api, Watch watch, Duration bookmark_interval, std::shared_ptr<void> open);

  Chunk next() override;

 private:
  std::string next_events();

  Api& api_;
  Watch watch_;
  const Duration bookmark_interval_;
  const std::shared_ptr<void> open_;
  const TimePoint end_;
  TimePoint next_bookmark_;
};

}  // namespace lockstep::local
