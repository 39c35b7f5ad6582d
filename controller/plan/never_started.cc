#include "controller/plan/never_started.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <ranges>
#include <string_view>

#include "common/api/worker_config.h"
#include "controller/plan/ledger.h"

namespace lockstep::plan {
namespace {

constexpr std::string_view kOutOfMemory = "OOMKilled";
constexpr std::string_view kReasons[] = {"Error", "Signal", kOutOfMemory, "StartError"};
constexpr int64_t kSentByOthers[] = {128 + SIGKILL, 128 + SIGTERM};
// Exit codes of the built-in loop that blame its surroundings.
constexpr int64_t kOfSurroundings[] = {kExitPeerLost, kExitStorageError, kExitPortTaken,
                                       kExitPeerHung, kExitNoDevice};

template <class Range, class Value>
bool contains(const Range& range, const Value& value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

bool is_same_way(const FailureStatus& a, const FailureStatus& b) {
  return a.reason == b.reason && a.exitCode == b.exitCode && a.generation == b.generation;
}

// Zero if a time can't be parsed, or the clock was set back.
Duration time_between(const FailureStatus& first, const FailureStatus& last) {
  const Result<WallTime> from = wall_time_from_rfc3339(first.time);
  const Result<WallTime> to = wall_time_from_rfc3339(last.time);
  if (!from.ok() || !to.ok()) return Duration{0};
  return std::max(*to - *from, Duration{0});
}

// A program's first line may say that it is at step 0.
bool tells_progress(const std::optional<ProgressStatus>& progress) {
  return progress && progress->step != 0;
}

// The built-in loop's progress is its step, which failures record.
bool command_has_progressed(const Pass& pass) {
  if (tells_progress(pass.status.progress)) return true;
  for (const PodView* pod : pass.current) {
    const AgentState* state = pass.current_report(pod);
    if (state != nullptr && (tells_progress(state->progress) || state->last_checkpoint)) {
      return true;
    }
  }
  return longest_run_seconds(pass.status, pass.seen.wall_now) >=
         to_seconds(pass.limits.attempt_max);
}

// Returns whether the program itself ended this start.
bool is_of_program(const FailureStatus& failure, bool is_train) {
  if (failure.rank < 0 || !contains(kReasons, failure.reason)) return false;
  if (failure.reason == kOutOfMemory) return true;
  if (contains(kSentByOthers, failure.exitCode)) return false;
  return !is_train || !contains(kOfSurroundings, failure.exitCode);
}

// The newest failures that are the same.
struct Series {
  int64_t starts = 0;  // 0 if the newest failure does not count
  Duration span{0};    // from the first failure to the last one
  bool is_on_one_node = true;
};

Series series_of(const TrainingJobStatus& status, const FailureStatus& newest, bool is_train) {
  if (!is_of_program(newest, is_train)) return {};
  Series series{.starts = 1};
  for (const FailureStatus& failure : std::views::reverse(status.failures)) {
    if (!is_of_program(failure, is_train)) continue;
    if (!is_same_way(failure, newest)) break;
    ++series.starts;
    series.span = time_between(failure, newest);
    series.is_on_one_node = series.is_on_one_node && failure.node == newest.node;
  }
  return series;
}

bool has_progressed(const Pass& pass, const FailureStatus& newest) {
  if (newest.furthestStep > 0 || pass.status.lastCheckpoint) return true;
  return !pass.spec().train && command_has_progressed(pass);
}

}  // namespace

std::string why_never_started(const Pass& pass, const FailureStatus& newest, bool moves) {
  const Series series = series_of(pass.status, newest, pass.spec().train.has_value());
  if (series.starts < pass.limits.equal_starts || series.span < pass.limits.equal_starts_span) {
    return "";
  }
  if (has_progressed(pass, newest) || (moves && series.is_on_one_node)) return "";
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(series.span).count();
  return "the last " + std::to_string(series.starts) + " starts, within " +
         std::to_string(seconds) + " s, all failed this way, and the job " +
         (pass.spec().train ? "never made a step"
                            : "never reported progress or ran for 10 minutes");
}

}  // namespace lockstep::plan
