#include "cli/client/status_page.h"

#include <algorithm>
#include <cstdio>

#include "cli/client/aligned.h"
#include "cli/client/output.h"
#include "cli/run/progress_line.h"
#include "common/api/conditions.h"
#include "common/api/hang_limit.h"
#include "common/base/utf8.h"

namespace lockstep::cli {
namespace {

constexpr size_t kEventsShown = 10;
constexpr size_t kLogLinesShown = 12;
constexpr size_t kMessageBytesShown = 320;  // all that a failed save says

// Replaces control characters, including U+0080 to U+009F, which terminals also obey.
std::string clean(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n') || c == 0x7f) text[i] = ' ';
    const bool is_c1 = c == 0xc2 && i + 1 < text.size() &&
                       static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                       static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) text.replace(i, 2, " ");
  }
  return text;
}

std::string number(double value, const char* format) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string counted(int64_t count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

// "Key:          value"
std::string field(const std::string& key, const std::string& value) {
  std::string line = key + ":";
  line.append(line.size() < 15 ? 15 - line.size() : 1, ' ');
  return line + clean(value) + "\n";
}

std::string since(const std::string& time, WallTime now) {
  return time.empty() ? "" : age_of(time, now) + " ago";
}

std::string state_line(const TrainingJob& job) {
  std::string text =
      job.status.state.empty() ? "(the controller has not seen it yet)" : job.status.state;
  if (job.status.round > 0) text += ", round " + std::to_string(job.status.round);
  if (job.status.restarts > 0) text += ", " + counted(job.status.restarts, "restart");
  if (!job.metadata.deletionTimestamp.empty()) text += " (is being deleted)";
  return text;
}

std::string nodes_line(const TrainingJob& job) {
  const int64_t each = processes_per_node(job.spec);
  const int64_t desired = std::max(job.status.nodes.desired, job.spec.nodes);
  const auto& round = job.status.rendezvous;
  const bool leaves_out = round && !round->nodeIndices.empty();
  const int64_t ranks = leaves_out ? round->worldSize : job.spec.nodes * each;
  return std::to_string(job.status.nodes.ready) + " of " + std::to_string(desired) + " ready, " +
         (each == 1 ? "1 process" : std::to_string(each) + " processes") + " each: ranks 0 to " +
         std::to_string(ranks - 1) + (leaves_out ? " on nodes " + round->nodeIndices : "");
}

// Returns what to add to the speed of a job that cannot compute as it asks to.
std::string precision_note(const TrainingJob& job) {
  const bool is_reduced = job.status.progress->precision == "fp32" && job.spec.train &&
                          job.spec.train->precision == "bf16";
  return is_reduced ? ", computed in fp32 (bf16 was asked for)" : "";
}

// The numbers that have a row on this page.
std::string number_lines(const TrainingJob& job) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const StepNumber& number : step_number_table()) {
    const std::string text = number_text(number, *job.status.progress, number.page);
    if (text.empty()) continue;
    if (rows.empty() || rows.back().first != number.page_row) {
      rows.emplace_back(number.page_row, text);
    } else {
      rows.back().second += ", " + text;
    }
  }
  std::string out;
  for (const auto& [row, text] : rows) {
    out += field(row, row == "Speed" ? text + precision_note(job) : text);
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return number(value, unit == 0 ? "%.0f " : "%.1f ") + kUnits[unit];
}

// Returns what one rank holds, with its part of what ranks divide: "parameters 62.1 MiB (1/8), ..."
std::string holdings_line(const HoldingsStatus& holdings) {
  static const std::vector<std::string> kLevels = {"none", "optimizer", "gradients", "parameters"};
  const auto level = std::ranges::find(kLevels, holdings.sharding) - kLevels.begin();
  const struct {
    const char* name;
    int64_t bytes;
    int64_t divided_from;  // the first level of sharding that divides it
  } parts[] = {
      {"parameters", holdings.parametersBytes, 3},   {"gradients", holdings.gradientsBytes, 2},
      {"optimizer", holdings.optimizerBytes, 1},     {"gathered", holdings.gatheredBytes, 4},
      {"activations", holdings.activationsBytes, 4}, {"offloaded", holdings.offloadedBytes, 4}};
  std::string text;
  for (const auto& part : parts) {
    if (part.bytes == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(part.name) + " " + bytes_text(part.bytes);
    const bool is_divided = part.divided_from <= level && level <= 3 && holdings.shardingRanks > 1;
    if (is_divided) text += " (1/" + std::to_string(holdings.shardingRanks) + ")";
  }
  return text;
}

std::string progress_lines(const TrainingJob& job, const StatusInput& input) {
  if (!job.status.progress) return "";
  const int64_t step = job.status.progress->step.value_or(0);
  const int64_t steps = job.status.progress->steps.value_or(0);
  std::string text = std::to_string(step);
  if (steps > 0) {
    const double share =
        std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0);
    const auto cells = static_cast<size_t>(std::clamp(input.width - 60, 10, 40));
    const auto full = static_cast<size_t>(share * static_cast<double>(cells));
    std::string left;
    if (job.spec.train && job.status.state == "Running") {
      left = time_left(*job.status.progress, step_size(*job.spec.train));
    }
    text = "[" + std::string(full, '#') + std::string(cells - full, '.') + "] " + text + "/" +
           std::to_string(steps) + " (" + number(100 * share, "%.0f") + " %" +
           (left.empty() ? "" : ", " + left) + ")";
  }
  return field("Progress", text) + number_lines(job);
}

// Formats the last lines, each after a bar.
std::string log_lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const size_t first = lines.size() > kLogLinesShown ? lines.size() - kLogLinesShown : 0;
  std::string out;
  for (size_t i = first; i < lines.size(); ++i) out += "  | " + clean(lines[i]) + "\n";
  return out;
}

std::string failure_lines(const TrainingJob& job, WallTime now) {
  if (!job.status.lastFailure) return "";
  const FailureStatus& failure = *job.status.lastFailure;
  std::string text = failure.rank >= 0 ? "rank " + std::to_string(failure.rank) : "a pod";
  if (!failure.node.empty()) text += " on " + failure.node;
  text += ": " + failure.reason;
  if (failure.exitCode >= 0) text += " (exit code " + std::to_string(failure.exitCode) + ")";
  text += " in round " + std::to_string(failure.round) + " at step " + std::to_string(failure.step);
  if (!failure.time.empty()) text += ", " + since(failure.time, now);
  std::string out = field("Last failure", text);
  std::string then = failure.action;
  if (failure.recoverySeconds > 0) {
    then += ", running again after " + number(failure.recoverySeconds, "%.1f") + " s";
  }
  if (!then.empty()) out += field("  then", then);
  return out + log_lines(failure.message);
}

std::string indented(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> cleaned = rows;
  for (auto& row : cleaned) {
    for (std::string& cell : row) {
      std::replace(cell.begin(), cell.end(), '\n', ' ');
      cell = clean(cell);
    }
    row.front().insert(0, "  ");
  }
  return aligned(cleaned);
}

std::string seconds(const std::optional<double>& value) {
  return value ? number(*value, "%.2f") : "-";
}

std::string lost_line(const LostStatus& lost) {
  if (lost == LostStatus{}) return "";
  std::string text = number(lost.seconds, "%.1f") + " s";
  if (lost.steps > 0) text += ", " + std::to_string(lost.steps) + " steps repeated";
  return field("Lost", text);
}

// The failure ledger, newest last.
std::string ledger_lines(const TrainingJob& job, WallTime now) {
  if (job.status.failures.empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"NUMBER", "SINCE", "RANK", "NODE", "REASON", "EXIT", "ACTION", "DETECT", "DECIDE", "WAIT",
       "PODS", "ABORT", "RESPAWN", "FORM", "RESTORE", "RECOMPUTE"}};
  for (const FailureStatus& one : job.status.failures) {
    const RecoveryStatus& parts = one.recovery;
    rows.push_back(
        {std::to_string(one.number), age_of(one.time, now),
         one.rank < 0 ? "-" : std::to_string(one.rank), one.node.empty() ? "-" : one.node,
         one.reason, one.exitCode < 0 ? "-" : std::to_string(one.exitCode), one.action,
         seconds(parts.detectSeconds), seconds(parts.decideSeconds), seconds(parts.waitSeconds),
         seconds(parts.podsSeconds), seconds(parts.abortSeconds), seconds(parts.respawnSeconds),
         seconds(parts.formSeconds), seconds(parts.restoreSeconds),
         seconds(parts.recomputeSeconds)});
  }
  return "Failures (times in seconds):\n" + indented(rows);
}

std::string condition_lines(const TrainingJob& job, WallTime now) {
  if (job.status.conditions.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"}};
  for (const Condition& one : job.status.conditions) {
    rows.push_back({one.type, one.status, one.reason, age_of(one.lastTransitionTime, now),
                    std::string(utf8_head(one.message, kMessageBytesShown))});
  }
  return "Conditions:\n" + indented(rows);
}

const Json& member(const Json& object, const char* key) {
  static const Json nothing = Json::object();
  const Json* value = find_member(object, key);
  return value == nullptr ? nothing : *value;
}

// Like kubectl's STATUS: the container's reason if it says more than the phase.
std::string pod_state(const Json& pod) {
  const Json& status = member(pod, "status");
  if (!string_or(member(pod, "metadata"), "deletionTimestamp", "").empty()) return "Terminating";
  std::string text = string_or(status, "phase", "Unknown");
  const Json& containers = member(status, "containerStatuses");
  for (const Json& one : containers.is_array() ? containers : Json::array()) {
    for (const char* kind : {"waiting", "terminated"}) {
      const std::string reason = string_or(member(member(one, "state"), kind), "reason", "");
      if (!reason.empty()) text = reason;
    }
  }
  const std::string reason = string_or(status, "reason", "");
  return reason.empty() ? text : reason;
}

std::string pod_lines(const Json& pods, WallTime now) {
  if (!pods.is_array() || pods.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"NAME", "STATUS", "NODE", "IP", "AGE"}};
  for (const Json& pod : pods) {
    const Json& meta = member(pod, "metadata");
    rows.push_back({string_or(meta, "name", ""), pod_state(pod),
                    string_or(member(pod, "spec"), "nodeName", "<none>"),
                    string_or(member(pod, "status"), "podIP", "<none>"),
                    age_of(string_or(meta, "creationTimestamp", ""), now)});
  }
  return "Pods:\n" + indented(rows);
}

// Returns when the event was last seen, from whichever API field has it.
std::string event_time(const Json& event) {
  for (const std::string& time :
       {string_or(member(event, "series"), "lastObservedTime", ""),
        string_or(event, "lastTimestamp", ""), string_or(event, "eventTime", ""),
        string_or(member(event, "metadata"), "creationTimestamp", "")}) {
    if (!time.empty()) return time;
  }
  return "";
}

std::string event_lines(const Json& events, WallTime now) {
  if (!events.is_array() || events.empty()) return "";
  std::vector<const Json*> sorted;
  for (const Json& event : events) sorted.push_back(&event);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Json* a, const Json* b) {
    const Result<WallTime> x = wall_time_from_rfc3339(event_time(*a));
    const Result<WallTime> y = wall_time_from_rfc3339(event_time(*b));
    return x.ok() && y.ok() && *x < *y;
  });
  const size_t first = sorted.size() > kEventsShown ? sorted.size() - kEventsShown : 0;
  std::vector<std::vector<std::string>> rows = {{"AGE", "TYPE", "REASON", "MESSAGE"}};
  for (size_t i = first; i < sorted.size(); ++i) {
    const Json& event = *sorted[i];
    const int64_t count =
        std::max(int_or(event, "count", 1), int_or(member(event, "series"), "count", 1));
    rows.push_back(
        {age_of(event_time(event), now) + (count > 1 ? " (x" + std::to_string(count) + ")" : ""),
         string_or(event, "type", ""), string_or(event, "reason", ""),
         string_or(event, "message", "").substr(0, 300)});
  }
  return "Events:\n" + indented(rows);
}

}  // namespace

std::string status_page(const StatusInput& input) {
  const TrainingJob& job = input.job;
  std::string page = field("Name", job.metadata.name) +
                     field("Namespace", job.metadata.namespace_) + field("State", state_line(job)) +
                     field("Nodes", nodes_line(job));
  if (job.status.rendezvous) {
    page += field("Rendezvous",
                  job.status.rendezvous->host + ":" + std::to_string(job.status.rendezvous->port));
  }
  page += progress_lines(job, input);
  if (job.status.holdings) page += field("Each rank holds", holdings_line(*job.status.holdings));
  if (job.status.lastCheckpoint) {
    page += field("Checkpoint", "step " + std::to_string(job.status.lastCheckpoint->step) + " in " +
                                    job.status.lastCheckpoint->path);
  }
  page += field("Created", since(job.metadata.creationTimestamp, input.now));
  if (!job.status.completionTime.empty()) {
    page += field("Ended", since(job.status.completionTime, input.now));
  }
  page += failure_lines(job, input.now) + lost_line(job.status.lost) +
          ledger_lines(job, input.now) + condition_lines(job, input.now) +
          pod_lines(input.pods, input.now) + event_lines(input.events, input.now);
  if (!input.trouble.empty()) page += "Not shown: " + clean(input.trouble) + "\n";
  return page;
}

std::string stuck_page(const TrainingJob& job, WallTime now) {
  const std::string name = job.metadata.name;
  if (!job.spec.train) {
    return name +
           " runs its own program, which does not report its collectives; see `lockstep logs " +
           name + "`.\n";
  }
  const Condition* stuck = find_condition(job.status, kStuck);
  if (is_finished(job.status) || is_true(job.status, kSuspended)) {
    return name + " is " + job.status.state + ": no rank is stuck.\n";
  }
  if (stuck != nullptr && stuck->status == "True") {
    return clean(name + ": " + stuck->message) + " (noticed " +
           since(stuck->lastTransitionTime, now) + ").\n";
  }
  if (!is_true(job.status, kRunning)) {
    return name + " is " + (job.status.state.empty() ? "not started" : job.status.state) +
           ": its ranks are not training yet, and no rank is known to be stuck.\n";
  }
  std::string text = name +
                     ": no rank is known to be stuck. No agent reports a rank that has waited for "
                     "another rank for " +
                     counted(static_cast<int64_t>(to_seconds(kWaitReportDelay)), "second") +
                     ", except perhaps for one that saves a checkpoint or validates";
  text += " (round " + std::to_string(job.status.round);
  if (job.status.progress) {
    text += ", step " + std::to_string(job.status.progress->step.value_or(0));
  }
  return text + ").\n";
}

}  // namespace lockstep::cli
