#include "cli/timeline/timeline_svg.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "cli/run/loss_curve.h"
#include "cli/run/svg.h"
#include "cli/timeline/rank_actions.h"

namespace lockstep::cli {
namespace {

constexpr double kWidth = 1200, kLeft = 130, kRight = 20, kTop = 96, kBottom = 44;
constexpr double kRow = 34, kBar = 26;
constexpr double kVisible = 0.2;       // pixels: narrower boxes are left out
constexpr double kDigit = 8;           // pixels of a digit of a micro-batch's number
constexpr double kNanoseconds = 1e-6;  // in milliseconds
constexpr char kWaitColor[] = "#7a7a7a";
constexpr char kTransferColor[] = "#d5d5d5";

struct Kind {
  const char* name;
  const char* color;
};
constexpr Kind kData{"take", "#c9b458"};
constexpr Kind kForward{"forward", "#6aaee6"};
constexpr Kind kBackward{"backward", "#6fbf73"};
constexpr Kind kUpdate{"update", "#f0a34a"};
constexpr Kind kTransfer{"send, receive", kTransferColor};
constexpr Kind kReductions{"finish reductions", "#b48fd6"};
constexpr Kind kWait{"wait within", kWaitColor};
constexpr Kind kEnd{"begin, end of step", "#eeeeee"};
constexpr Kind kLegend[] = {kForward,  kBackward,   kUpdate, kData,
                            kTransfer, kReductions, kWait,   kEnd};

const Kind& kind_of(const ActionSpan& span) {
  if (!span.action) return kEnd;
  switch (*span.action) {
    case ActionKind::kTake:
      return kData;
    case ActionKind::kForward:
      return kForward;
    case ActionKind::kBackward:
    case ActionKind::kBackwardWeights:
      return kBackward;
    case ActionKind::kUpdate:
      return kUpdate;
    case ActionKind::kFinishReductions:
      return kReductions;
    case ActionKind::kReceiveActivation:
    case ActionKind::kSendActivation:
    case ActionKind::kReceiveGradient:
    case ActionKind::kSendGradient:
      return kTransfer;
  }
  return kEnd;
}

// Where times of a step are in the picture.
class Scale {
 public:
  explicit Scale(const std::vector<StepUse>& uses) {
    int64_t begin = std::numeric_limits<int64_t>::max();
    int64_t end = std::numeric_limits<int64_t>::min();
    for (const StepUse& use : uses) {
      begin = std::min(begin, use.begin);
      end = std::max(end, use.begin + use.step);
    }
    if (uses.empty()) return;
    origin_ = begin;
    ticks_ = round_ticks(0, static_cast<double>(end - begin) * kNanoseconds, 8);
  }

  double x(int64_t time) const { return x_of(static_cast<double>(time - origin_) * kNanoseconds); }
  double x_of(double milliseconds) const {
    return kLeft + milliseconds / ticks_.back() * (kWidth - kLeft - kRight);
  }
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  int64_t origin_ = 0;
  std::vector<double> ticks_ = {0, 1};  // milliseconds
};

std::string box_between(const Scale& scale, const ActionSpan::Wait& time, double y, double height,
                        const std::string& color, const std::string& title) {
  const double left = std::max(scale.x(time.begin_ns), kLeft);
  const double right = std::min(scale.x(time.end_ns), kWidth - kRight);
  if (right - left < kVisible) return "";
  return svg_box({left, y, right - left, height}, color, title);
}

std::string title_of(const ActionSpan& span) {
  const double length = static_cast<double>(span.end_ns - span.begin_ns) * kNanoseconds;
  return span.name() + ", " + svg_number(length, "%.3f") + " ms";
}

std::string bar(const Scale& scale, const ActionSpan& span, double y) {
  std::string svg = box_between(scale, {span.begin_ns, span.end_ns}, y, kBar, kind_of(span).color,
                                title_of(span));
  if (svg.empty()) return svg;
  for (const ActionSpan::Wait& wait : span.waits) {
    svg += box_between(scale, wait, y + kBar - 6, 6, kWaitColor, "wait in " + span.name());
  }
  const std::string number = std::to_string(span.micro_batch);
  const double left = scale.x(span.begin_ns);
  const double right = scale.x(span.end_ns);
  const bool has_room = right - left > kDigit * static_cast<double>(number.size()) + 2;
  if (!span.computes || span.micro_batch < 0 || !has_room) return svg;
  return svg + svg_text((left + right) / 2, y + 17, "middle", number, "font-size=\"12\"");
}

std::string axis(const Scale& scale, double bottom) {
  std::string svg;
  for (const double tick : scale.ticks()) {
    svg += svg_line(scale.x_of(tick), kTop - 6, scale.x_of(tick), bottom, "#e4e4e4");
    svg += svg_text(scale.x_of(tick), bottom + 18, "middle", svg_number(tick, "%g"));
  }
  return svg + svg_text(kWidth / 2, bottom + 36, "middle", "milliseconds");
}

std::string legend() {
  std::string svg;
  double x = kLeft;
  for (const Kind& kind : kLegend) {
    svg += svg_box({x, 62, 14, 14}, kind.color);
    svg += svg_text(x + 19, 74, "start", kind.name);
    x += 40 + 7 * static_cast<double>(std::string(kind.name).size());
  }
  return svg;
}

std::string label_of(const RankTimeline& rank) {
  const std::string name = "rank " + std::to_string(rank.rank);
  return rank.stages > 1 ? name + ", stage " + std::to_string(rank.stage) : name;
}

std::string row(const Scale& scale, const RankTimeline& rank, int64_t step, double y) {
  std::string svg = svg_text(kLeft - 10, y + 17, "end", label_of(rank));
  for (const ActionSpan& span : action_spans(rank)) {
    if (span.step == step) svg += bar(scale, span, y);
  }
  return svg;
}

}  // namespace

std::string timeline_svg(const Recording& recording, int64_t step) {
  const std::vector<StepUse> uses = step_uses(recording, step);
  const Scale scale(uses);
  const size_t count = std::min(recording.ranks.size(), kPicturedRanksMax);
  const double bottom = kTop + kRow * static_cast<double>(count);
  std::string title = "step " + std::to_string(step) + ": " + bubble_text(uses);
  if (count < recording.ranks.size()) {
    title += "; the first " + std::to_string(count) + " of " +
             std::to_string(recording.ranks.size()) + " ranks";
  }
  std::string parts = svg_text(kWidth / 2, 32, "middle", title, "font-size=\"17\"") + legend() +
                      axis(scale, bottom);
  for (size_t i = 0; i < count; ++i) {
    parts += row(scale, recording.ranks[i], step, kTop + kRow * static_cast<double>(i));
  }
  return svg_picture(kWidth, bottom + kBottom, parts);
}

}  // namespace lockstep::cli
