#include "cli/run/reporter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "common/api/agent_messages.h"
#include "common/api/conditions.h"
#include "local/node/pod_worker.h"

namespace lockstep::cli {
namespace {

constexpr Duration kLogInterval = std::chrono::seconds(5);
constexpr char kClearLine[] = "\r\x1b[K";

std::string last_lines(const std::string& text, size_t lines_max) {
  size_t begin = text.size();
  while (begin > 0 && lines_max > 0) {
    begin = text.rfind('\n', begin - 1);
    if (begin == std::string::npos) return text;
    --lines_max;
  }
  return text.substr(begin);
}

std::string failure_text(const FailureStatus& failure) {
  std::string text = failure.reason.empty() ? "a failure" : failure.reason;
  if (failure.rank >= 0) text = "rank " + std::to_string(failure.rank) + ": " + text;
  if (failure.nodeIndex >= 0) text += " on node " + std::to_string(failure.nodeIndex);
  if (failure.exitCode >= 0) text += ", exit code " + std::to_string(failure.exitCode);
  if (const std::string signal = signal_name(failure.exitCode - 128);
      !signal.empty() && failure.reason != "Error")
    text += " (" + signal + ")";
  if (!failure.action.empty()) text += " -> " + failure.action;
  return text;
}

bool ends_run(const FailureStatus& failure) {
  return failure.action == "Fail" || failure.reason == local::kNoAddressReason;
}

// A job may set several checkpoints aside, each in a round of its own. The message of
// CheckpointFailing alone changes with every failed save.
bool warns_anew(const TrainingJobStatus& before, const TrainingJobStatus& after,
                std::string_view type) {
  if (!is_true(after, type)) return false;
  if (!is_true(before, type)) return true;
  return (type == kCheckpointSetAside || type == kBatchSkipped) &&
         find_condition(before, type)->message != find_condition(after, type)->message;
}

void add_warnings(const TrainingJobStatus& before, const TrainingJobStatus& after,
                  std::vector<std::string>& events) {
  for (const char* type : {kPrecisionReduced, kStraggling, kCheckpointFailing, kCheckpointSetAside,
                           kBatchSkipped, kNetworkPolicyFailing}) {
    if (!warns_anew(before, after, type)) continue;
    events.push_back("warning: " + find_condition(after, type)->message);
  }
}

void write_to(int fd, std::string_view rest) {
  while (!rest.empty()) {
    ssize_t written = write(fd, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) return;  // nobody reads it any more; the run goes on
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::vector<std::string> status_events(const TrainingJobStatus& before,
                                       const TrainingJobStatus& after) {
  std::vector<std::string> events;
  bool failed_anew = after.lastFailure && !ends_run(*after.lastFailure) &&
                     (!before.lastFailure || before.lastFailure->time != after.lastFailure->time ||
                      before.lastFailure->round != after.lastFailure->round);
  if (failed_anew) {
    events.push_back("failure: " + failure_text(*after.lastFailure));
    if (!after.lastFailure->message.empty())
      events.push_back(last_lines(after.lastFailure->message, 5));
  }
  if (after.restarts > before.restarts)
    events.push_back("restart " + std::to_string(after.restarts));
  if (after.round > before.round && after.rendezvous)
    events.push_back("round " + std::to_string(after.round) + ": " +
                     std::to_string(after.rendezvous->worldSize) + " processes, rank 0 at " +
                     after.rendezvous->host + ":" + std::to_string(after.rendezvous->port));
  if (after.lastFailure && before.lastFailure && after.lastFailure->recoverySeconds > 0 &&
      before.lastFailure->recoverySeconds == 0)
    events.push_back("running again, " + rate_text(after.lastFailure->recoverySeconds) +
                     " s after the failure");
  if (after.lastCheckpoint &&
      (!before.lastCheckpoint || before.lastCheckpoint->step != after.lastCheckpoint->step))
    events.push_back("checkpoint of step " + std::to_string(after.lastCheckpoint->step));
  add_warnings(before, after, events);
  return events;
}

// The message is `cause; the end of its log:`, and the log from the next line on.
std::string failed_message(const std::string& message, const QuotedLog& quoted) {
  if (quoted.log.empty() || !message.ends_with(quoted.log)) return message;
  const std::string head = message.substr(0, message.size() - quoted.log.size());
  return quoted.unseen.empty() ? head.substr(0, head.rfind(';')) : head + quoted.unseen;
}

Reporter::Reporter(const Clock& clock, int fd)
    : clock_(clock), fd_(fd), terminal_(isatty(fd) == 1) {}

void Reporter::line(std::string_view text) {
  std::string whole = terminal_ && !live_.empty() ? kClearLine : "";
  whole += text;
  if (!text.ends_with('\n')) whole += '\n';
  write_all(whole + live_);
}

void Reporter::output(std::string_view lines, int fd) {
  if (lines.empty()) return;
  if (terminal_ && !live_.empty()) write_all(kClearLine);
  write_to(fd, lines);
  if (terminal_ && !live_.empty()) write_all(live_);
}

void Reporter::progress(const ProgressSnapshot& snapshot) {
  if (terminal_) {
    std::string next = progress_line(snapshot, columns() - 1);
    if (next == live_) return;
    live_ = std::move(next);
    write_all(kClearLine + live_);
    return;
  }
  TimePoint now = clock_.now();
  if (logged_at_ && now - *logged_at_ < kLogInterval) return;
  logged_at_ = now;
  write_all(progress_log_line(snapshot) + "\n");
}

void Reporter::clear() {
  if (!live_.empty()) write_all(kClearLine);
  live_.clear();
}

int Reporter::columns() const {
  winsize size{};
  if (ioctl(fd_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void Reporter::write_all(std::string_view text) {
  write_to(fd_, text);
}

}  // namespace lockstep::cli
