#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::cli {

struct LossCurve {
  std::string title;
  std::map<int64_t, double> train;  // step -> loss
  std::map<int64_t, double> validation;
};

// Draws the curve as an SVG picture of 800 x 500: axes with round numbers; the training loss as a
// line averaged to at most 700 points, over a faint band of the single steps; validation losses as
// marked points, the last one with its value. Valid SVG for any input, even an empty one.
std::string loss_curve_svg(const LossCurve& curve);

// Returns round numbers that cover [low, high] in about `count` steps of 1, 2 or 5 times a power of
// ten.
std::vector<double> round_ticks(double low, double high, int count);

}  // namespace lockstep::cli
