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
  const int64_t step = snapshot.numbers.step.value_or(0);
  const int64_t steps = snapshot.numbers.steps.value_or(0);
  std::string text;
  if (steps > 0)
    text = std::to_string(step) + "/" + std::to_string(steps);
  else if (step > 0)
    text = std::to_string(step);
  const auto append = [&](const std::string& part) {
    if (!part.empty()) text += "  " + part;
  };
  for (const StepNumber& number : step_number_table())
    append(number_text(number, snapshot.numbers, number.run));
  append(time_left(snapshot.numbers, snapshot.step_size));
  if (snapshot.restarts > 0) append("restarts " + std::to_string(snapshot.restarts));
  return text;
}

// Returns the number alone.
std::string styled(double value, NumberStyle style) {
  switch (style) {
    case NumberStyle::kThreeDecimals:
      return number(value, "%.3f");
    case NumberStyle::kFourDigits:
      return number(value, "%.4g");
    case NumberStyle::kRate:
      return rate_text(value);
    case NumberStyle::kWhole:
      return number(value, "%.0f");
    case NumberStyle::kPercent:
      break;
  }
  return number(100 * value, "%.1f");
}

std::string state_prefix(const ProgressSnapshot& snapshot) {
  if (snapshot.state == "Running" || snapshot.state.empty()) return "";
  return snapshot.state + "  ";
}

}  // namespace

std::string number_text(const StepNumber& number, const StepNumbers& numbers,
                        const ShownNumber& shown) {
  const std::optional<double> value = value_of(number, numbers);
  const bool is_idle = shown.style == NumberStyle::kRate && value.value_or(0) <= 0;
  if (shown.text.empty() || !value || is_idle) return "";
  std::string text(shown.text);
  return text.replace(text.find("{}"), 2, styled(*value, shown.style));
}

StepSize step_size(const TrainSpec& train) {
  return {.tokens = tokens_per_step(train), .samples = static_cast<double>(train.batch.global)};
}

std::string time_left(const StepNumbers& numbers, const StepSize& step) {
  const bool has_tokens = step.tokens > 0 && numbers.tokens_per_second;
  const double size = has_tokens ? step.tokens : step.samples;
  const double rate =
      (has_tokens ? numbers.tokens_per_second : numbers.samples_per_second).value_or(0);
  if (rate <= 0 || size <= 0) return "";
  const int64_t steps = std::max<int64_t>(0, numbers.steps.value_or(0) - numbers.step.value_or(0));
  return clock_text(static_cast<double>(steps) * size / rate) + " left";
}

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
  const int64_t steps = snapshot.numbers.steps.value_or(0);
  if (room >= 10 && steps > 0) {
    int cells = std::min(room, 40);
    double share =
        static_cast<double>(snapshot.numbers.step.value_or(0)) / static_cast<double>(steps);
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
  const bool has_steps =
      snapshot.numbers.steps.value_or(0) > 0 || snapshot.numbers.step.value_or(0) > 0;
  if (!has_steps)
    return clock_text(snapshot.elapsed_seconds) + "  " +
           (snapshot.state.empty() ? "Pending" : snapshot.state) + text;
  return clock_text(snapshot.elapsed_seconds) + "  " + state_prefix(snapshot) + "step " + text;
}

}  // namespace lockstep::cli
