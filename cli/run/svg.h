#pragma once

#include <string>

namespace lockstep::cli {

// Parts of SVG pictures. All texts are escaped.

// Formats with printf's format for one double.
std::string svg_number(double value, const char* format = "%.2f");
// `anchor`: start, middle or end. `more`: further attributes.
std::string svg_text(double x, double y, const std::string& anchor, const std::string& content,
                     const std::string& more = "");
std::string svg_line(double x1, double y1, double x2, double y2, const std::string& color);
struct SvgBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};
// `title` is shown when the pointer is over the box; empty: nothing is.
std::string svg_box(const SvgBox& box, const std::string& color, const std::string& title = "");
// Returns a white picture of this size, in pixels, with these parts in it.
std::string svg_picture(double width, double height, const std::string& parts);

}  // namespace lockstep::cli
