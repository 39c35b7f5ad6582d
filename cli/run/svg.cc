#include "cli/run/svg.h"

#include <cstdio>

namespace lockstep::cli {
namespace {

std::string escaped(const std::string& text) {
  std::string safe;
  for (char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      safe += c;
  }
  return safe;
}

}  // namespace

std::string svg_number(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string svg_text(double x, double y, const std::string& anchor, const std::string& content,
                     const std::string& more) {
  return "<text x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" text-anchor=\"" + anchor +
         "\" " + more + ">" + escaped(content) + "</text>\n";
}

std::string svg_line(double x1, double y1, double x2, double y2, const std::string& color) {
  return "<line x1=\"" + svg_number(x1) + "\" y1=\"" + svg_number(y1) + "\" x2=\"" +
         svg_number(x2) + "\" y2=\"" + svg_number(y2) + "\" stroke=\"" + color + "\"/>\n";
}

std::string svg_box(const SvgBox& box, const std::string& color, const std::string& title) {
  const std::string head = "<rect x=\"" + svg_number(box.x) + "\" y=\"" + svg_number(box.y) +
                           "\" width=\"" + svg_number(box.width) + "\" height=\"" +
                           svg_number(box.height) + "\" fill=\"" + color + "\"";
  if (title.empty()) return head + "/>\n";
  return head + "><title>" + escaped(title) + "</title></rect>\n";
}

std::string svg_picture(double width, double height, const std::string& parts) {
  const std::string w = svg_number(width, "%.0f");
  const std::string h = svg_number(height, "%.0f");
  const std::string size = "width=\"" + w + "\" height=\"" + h + "\"";
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size + " viewBox=\"0 0 " + w + " " + h +
         "\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222222\">\n<rect " + size +
         " fill=\"white\"/>\n" + parts + "</svg>\n";
}

}  // namespace lockstep::cli
