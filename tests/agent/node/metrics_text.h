#pragma once

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

namespace lockstep::node {

// Parses the Prometheus text format like a scraper; fails the test for a line that a scraper would
// refuse. Source: Prometheus, "Exposition formats", text format 0.0.4.
class MetricsText {
 public:
  explicit MetricsText(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# TYPE ")) {
        std::istringstream words(line.substr(7));
        std::string name;
        words >> name >> types_[name];
      } else if (!line.empty() && line[0] != '#') {
        read_sample(line);
      }
    }
  }

  bool has(const std::string& name) const {
    const auto it = samples_.lower_bound(name);
    return it != samples_.end() && it->first.starts_with(name);
  }
  // Returns NaN, which equals nothing, if there is no such series.
  double value(const std::string& series) const {
    const auto it = samples_.find(series);
    return it == samples_.end() ? std::numeric_limits<double>::quiet_NaN() : it->second;
  }
  std::string type(const std::string& name) const {
    const auto it = types_.find(name);
    return it == types_.end() ? "" : it->second;
  }

 private:
  void read_sample(const std::string& line) {
    const size_t blank = line.rfind(' ');
    ASSERT_NE(blank, std::string::npos) << line;
    const std::string series = line.substr(0, blank);
    const std::string name = series.substr(0, series.find('{'));
    char* end = nullptr;
    const double value = std::strtod(line.c_str() + blank + 1, &end);
    EXPECT_EQ(*end, '\0') << line;
    EXPECT_TRUE(types_.contains(name)) << "no TYPE before " << line;
    EXPECT_TRUE(samples_.emplace(series, value).second) << "twice: " << line;
  }

  std::map<std::string, std::string> types_;
  std::map<std::string, double> samples_;
};

}  // namespace lockstep::node
