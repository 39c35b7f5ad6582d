#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/histogram.h"

namespace lockstep {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;  // UTF-8

// Builds the response to one scrape, family by family. Implemented with prometheus-cpp.
class Exposition {
 public:
  enum class Type { kCounter, kGauge, kHistogram };

  // `common`: labels that are added to every metric.
  explicit Exposition(MetricLabels common);
  ~Exposition();

  // Starts a family; metrics added from here on belong to it. A family without metrics is left out.
  void family(const char* name, const char* help, Type type);
  // Leaves out values that are not finite.
  void add(double value, const MetricLabels& labels = {});
  void add(const Histogram& histogram, const MetricLabels& labels = {});
  void single(const char* name, const char* help, Type type, double value) {
    family(name, help, type);
    add(value);
  }

  // Returns the Prometheus text format, version 0.0.4.
  std::string text() const;

 private:
  struct Families;
  MetricLabels common_;
  std::unique_ptr<Families> families_;
};

// Content type of HTTP responses that carry this text.
inline constexpr char kExpositionContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace lockstep
