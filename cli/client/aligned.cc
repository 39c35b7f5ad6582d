#include "cli/client/aligned.h"

#include <algorithm>

namespace lockstep::cli {
namespace {

// Returns the columns on a terminal, for any bytes: UTF-8 continuation bytes don't count.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string aligned(const std::vector<std::vector<std::string>>& rows,
                    std::vector<size_t>* widths) {
  std::vector<size_t> own;
  std::vector<size_t>& width = widths == nullptr ? own : *widths;
  for (const auto& row : rows) {
    if (width.size() < row.size()) width.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(width[i] - width_of(row[i]) + 3, ' ');
    }
    out += '\n';
  }
  return out;
}

}  // namespace lockstep::cli
