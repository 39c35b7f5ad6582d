#include "cli/run/progress_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lockstep::cli {
namespace {

std::string number(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// The numbers after the bar.
std::string numbers(const ProgressSnapshot& snapshot) {
  std::string text;
  if (snapshot.steps > 0)
    text = std::to_string(snapshot.step) + "/" + std::to_string(snapshot.steps);
  else if (snapshot.step > 0)
    text = std::to_string(snapshot.step);
  if (snapshot.loss) text += "  loss " + number(*snapshot.loss, "%.3f");
  if (snapshot.tokens_per_second > 0) {
    text += "  " + rate_text(snapshot.tokens_per_second) + " tok/s";
    if (snapshot.mfu) text += "  MFU " + number(100 * *snapshot.mfu, "%.1f") + " %";
    double left = static_cast<double>(std::max<int64_t>(0, snapshot.steps - snapshot.step)) *
                  snapshot.tokens_per_step / snapshot.tokens_per_second;
    if (snapshot.tokens_per_step > 0) text += "  " + clock_text(left) + " left";
  }
  if (snapshot.samples_per_second > 0)
    text += "  " + rate_text(snapshot.samples_per_second) + " samples/s";
  if (snapshot.restarts > 0) text += "  restarts " + std::to_string(snapshot.restarts);
  return text;
}

std::string state_prefix(const ProgressSnapshot& snapshot) {
  if (snapshot.state == "Running" || snapshot.state.empty()) return "";
  return snapshot.state + "  ";
}

}  // namespace

std::string clock_text(double seconds) {
  auto whole = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  char text[32];
  if (whole >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  return text;
}

std::string rate_text(double per_second) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G"}) {
    if (per_second < 1000) break;
    per_second /= 1000;
    unit = next;
  }
  return number(per_second, per_second >= 99.95   ? "%.0f"
                            : per_second >= 9.995 ? "%.1f"
                                                  : "%.2f") +
         unit;
}

std::string progress_line(const ProgressSnapshot& snapshot, int width) {
  std::string tail = state_prefix(snapshot) + numbers(snapshot);
  std::string head = snapshot.name + " ";
  int room = width - static_cast<int>(head.size() + tail.size()) - 5;
  std::string bar;
  if (room >= 10 && snapshot.steps > 0) {
    int cells = std::min(room, 40);
    double share = static_cast<double>(snapshot.step) / static_cast<double>(snapshot.steps);
    auto full = static_cast<int>(std::clamp(share, 0.0, 1.0) * cells);
    bar = "[" + std::string(static_cast<size_t>(full), '#') +
          std::string(static_cast<size_t>(cells - full), '.') + "]  ";
  }
  std::string line = head + bar + tail;
  if (width > 0 && line.size() > static_cast<size_t>(width))
    line.resize(static_cast<size_t>(width));
  return line;
}

std::string progress_log_line(const ProgressSnapshot& snapshot) {
  const std::string text = numbers(snapshot);
  const bool has_steps = snapshot.steps > 0 || snapshot.step > 0;
  if (!has_steps)
    return clock_text(snapshot.elapsed_seconds) + "  " +
           (snapshot.state.empty() ? "Pending" : snapshot.state) + text;
  return clock_text(snapshot.elapsed_seconds) + "  " + state_prefix(snapshot) + "step " + text;
}

}  // namespace lockstep::cli
