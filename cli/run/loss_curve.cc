#include "cli/run/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/run/svg.h"

namespace lockstep::cli {
namespace {

constexpr double kWidth = 800, kHeight = 500;
constexpr double kLeft = 70, kRight = 30, kTop = 50, kBottom = 60;
constexpr size_t kPointsMax = 700;
constexpr char kTrainColor[] = "#1f77b4";
constexpr char kValidationColor[] = "#d62728";

struct Point {
  double step = 0;
  double loss = 0;
  double low = 0;  // range over the steps that the point represents
  double high = 0;
};

std::vector<Point> reduced(const std::map<int64_t, double>& losses) {
  std::vector<Point> points;
  size_t group = losses.size() / kPointsMax + 1;
  Point sum;
  size_t count = 0;
  for (const auto& [step, loss] : losses) {
    if (!std::isfinite(loss)) continue;
    sum.low = count == 0 ? loss : std::min(sum.low, loss);
    sum.high = count == 0 ? loss : std::max(sum.high, loss);
    sum.step += static_cast<double>(step);
    sum.loss += loss;
    if (++count < group) continue;
    points.push_back({sum.step / static_cast<double>(count), sum.loss / static_cast<double>(count),
                      sum.low, sum.high});
    sum = {};
    count = 0;
  }
  if (count > 0)
    points.push_back({sum.step / static_cast<double>(count), sum.loss / static_cast<double>(count),
                      sum.low, sum.high});
  return points;
}

struct Scale {
  std::vector<double> x_ticks;
  std::vector<double> y_ticks;

  double x(double step) const { return place(step, x_ticks, kLeft, kWidth - kRight); }
  double y(double loss) const { return place(loss, y_ticks, kHeight - kBottom, kTop); }

 private:
  static double place(double value, const std::vector<double>& ticks, double from, double to) {
    double share = (value - ticks.front()) / (ticks.back() - ticks.front());
    return from + share * (to - from);
  }
};

Scale scale_of(const std::vector<Point>& train, const std::map<int64_t, double>& validation) {
  double low = std::numeric_limits<double>::infinity(), high = -low, steps = 1;
  for (const Point& point : train) {
    low = std::min(low, point.low);
    high = std::max(high, point.high);
    steps = std::max(steps, point.step);
  }
  for (const auto& [step, loss] : validation) {
    if (!std::isfinite(loss)) continue;
    low = std::min(low, loss);
    high = std::max(high, loss);
    steps = std::max(steps, static_cast<double>(step));
  }
  if (low > high) low = 0, high = 1;
  return {round_ticks(0, steps, 8), round_ticks(low, high, 6)};
}

std::string axes(const Scale& scale) {
  std::string svg;
  double bottom = kHeight - kBottom;
  for (double tick : scale.x_ticks) {
    svg += svg_line(scale.x(tick), kTop, scale.x(tick), bottom, "#eeeeee");
    svg += svg_text(scale.x(tick), bottom + 20, "middle", svg_number(tick, "%g"));
  }
  for (double tick : scale.y_ticks) {
    svg += svg_line(kLeft, scale.y(tick), kWidth - kRight, scale.y(tick), "#e4e4e4");
    svg += svg_text(kLeft - 10, scale.y(tick) + 4, "end", svg_number(tick, "%g"));
  }
  svg += svg_line(kLeft, bottom, kWidth - kRight, bottom, "#444444");
  svg += svg_line(kLeft, kTop, kLeft, bottom, "#444444");
  svg += svg_text((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", "step");
  svg +=
      svg_text(0, 0, "middle", "loss (nats per token)",
               "transform=\"translate(20 " + svg_number((kTop + bottom) / 2) + ") rotate(-90)\"");
  return svg;
}

std::string train_line(const Scale& scale, const std::vector<Point>& points) {
  if (points.empty()) return "";
  std::string path, above, below;
  for (size_t i = 0; i < points.size(); ++i) {
    std::string x = svg_number(scale.x(points[i].step)) + " ";
    path += (i == 0 ? "M" : " L") + x + svg_number(scale.y(points[i].loss));
    above += (i == 0 ? "M" : " L") + x + svg_number(scale.y(points[i].high));
    below = " L" + x + svg_number(scale.y(points[i].low)) + below;
  }
  return "<path d=\"" + above + below + " Z\" fill=\"" + kTrainColor + "\" opacity=\"0.2\"/>\n" +
         "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + kTrainColor +
         "\" stroke-width=\"1.5\"/>\n";
}

std::string validation_points(const Scale& scale, const std::map<int64_t, double>& validation) {
  std::string svg;
  for (const auto& [step, loss] : validation) {
    if (!std::isfinite(loss)) continue;
    double x = scale.x(static_cast<double>(step)), y = scale.y(loss);
    svg += "<circle cx=\"" + svg_number(x) + "\" cy=\"" + svg_number(y) + "\" r=\"4.5\" fill=\"" +
           kValidationColor + "\" stroke=\"white\"/>\n";
    if (step == validation.rbegin()->first)
      svg += svg_text(x, y - 12, "end", svg_number(loss, "%.3f"),
                      std::string("font-weight=\"bold\" fill=\"") + kValidationColor + "\"");
  }
  return svg;
}

std::string legend(bool has_validation) {
  double x = kWidth - kRight - 150;
  std::string svg = "<rect x=\"" + svg_number(x) + "\" y=\"" + svg_number(kTop + 10) +
                    "\" width=\"24\" height=\"3\" fill=\"" + kTrainColor + "\"/>\n" +
                    svg_text(x + 34, kTop + 16, "start", "training");
  if (!has_validation) return svg;
  return svg + "<circle cx=\"" + svg_number(x + 12) + "\" cy=\"" + svg_number(kTop + 32) +
         "\" r=\"4.5\" fill=\"" + kValidationColor + "\"/>\n" +
         svg_text(x + 34, kTop + 36, "start", "validation");
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  if (!(high > low)) high = low + (low == 0 ? 1 : std::abs(low));
  double raw = (high - low) / count;
  double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * power;
    if (step >= raw) break;
  }
  std::vector<double> ticks;
  double first = std::floor(low / step), last = std::ceil(high / step);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string loss_curve_svg(const LossCurve& curve) {
  std::vector<Point> points = reduced(curve.train);
  Scale scale = scale_of(points, curve.validation);
  return svg_picture(kWidth, kHeight,
                     svg_text(kWidth / 2, 28, "middle", curve.title, "font-size=\"17\"") +
                         axes(scale) + train_line(scale, points) +
                         validation_points(scale, curve.validation) +
                         legend(!curve.validation.empty()));
}

}  // namespace lockstep::cli
