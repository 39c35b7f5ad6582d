#include "local/node/log_observer.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "common/base/log.h"
#include "local/store/log_times.h"

namespace lockstep::local {
namespace {

constexpr int kBlocksPerLook = 16;
constexpr int kPauseMs = 10;  // between two looks, so that many small writes share one record

}  // namespace

LogObserver::LogObserver(const Clock& clock)
    : clock_(clock),
      events_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  if (events_ >= 0 && stop_ >= 0) thread_ = std::thread([this] { loop(); });
}

LogObserver::~LogObserver() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(stop_, &one, sizeof one);
    thread_.join();
  }
  if (events_ >= 0) close(events_);
  if (stop_ >= 0) close(stop_);
}

void LogObserver::add(const std::string& log) {
  std::lock_guard lock(mutex_);
  Entry& entry = logs_[log];
  close_watch(entry);
  entry = {};
  if (thread_.joinable()) entry.watch = inotify_add_watch(events_, log.c_str(), IN_MODIFY);
  if (entry.watch >= 0) {
    names_[entry.watch] = log;
  } else if (!std::exchange(has_warned_, true)) {
    log_warning("can't watch a log with inotify: the times of its lines are less precise",
                {{"error", std::strerror(errno)}});
  }
  begin_times(times_file_of(log));
  observe(log, entry);
}

void LogObserver::remove(const std::string& log) {
  std::lock_guard lock(mutex_);
  auto found = logs_.find(log);
  if (found == logs_.end()) return;
  observe(log, found->second);
  close_watch(found->second);
  logs_.erase(found);
}

void LogObserver::close_watch(Entry& entry) {
  if (entry.watch < 0) return;
  inotify_rm_watch(events_, entry.watch);
  names_.erase(entry.watch);
  entry.watch = -1;
}

void LogObserver::observe(const std::string& log) {
  std::lock_guard lock(mutex_);
  if (auto found = logs_.find(log); found != logs_.end()) observe(log, found->second);
}

void LogObserver::observe(const std::string& log, Entry& entry) {
  struct stat info {};
  if (stat(log.c_str(), &info) != 0) return;
  const std::string times = times_file_of(log);
  if (info.st_size < entry.bytes) {  // its beginning was cut off
    (void)!truncate(times.c_str(), 0);
    entry.bytes = 0;
  }
  if (info.st_size == entry.bytes) return;
  entry.bytes = info.st_size;
  // The wall clock may be set back.
  entry.nanoseconds =
      std::max<int64_t>(entry.nanoseconds, clock_.wall_now().time_since_epoch().count());
  append_time_record(times, {.bytes = entry.bytes, .nanoseconds = entry.nanoseconds});
}

void LogObserver::loop() {
  std::array<pollfd, 2> ready = {{{.fd = stop_, .events = POLLIN, .revents = 0},
                                  {.fd = events_, .events = POLLIN, .revents = 0}}};
  while (true) {
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[0].revents != 0) return;
    if (ready[1].revents != 0) read_events();
    if (poll(ready.data(), 1, kPauseMs) > 0) return;
  }
}

void LogObserver::read_events() {
  alignas(inotify_event) std::array<char, 64 << 10> buffer;
  std::set<int> watches;
  bool missed_some = false;
  for (int block = 0; block < kBlocksPerLook; ++block) {
    const ssize_t bytes = read(events_, buffer.data(), buffer.size());
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      missed_some = missed_some || (event->mask & IN_Q_OVERFLOW) != 0;
      watches.insert(event->wd);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
  std::lock_guard lock(mutex_);
  if (missed_some) {
    for (auto& [log, entry] : logs_) observe(log, entry);
    return;
  }
  for (int watch : watches) {
    if (auto name = names_.find(watch); name != names_.end())
      observe(name->second, logs_[name->second]);
  }
}

}  // namespace lockstep::local
