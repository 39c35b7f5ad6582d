#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/histogram.h"

namespace lockstep {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;  // UTF-8

// One answer to a scrape, built family by family. Behind it is prometheus-cpp.
class Exposition {
 public:
  enum class Type { kCounter, kGauge, kHistogram };

  // `common`: labels that every metric has.
  explicit Exposition(MetricLabels common);
  ~Exposition();

  // What is added from here on belongs to it. A family without metrics is left out.
  void family(const char* name, const char* help, Type type);
  // Values that are not finite are left out.
  void add(double value, const MetricLabels& labels = {});
  void add(const Histogram& histogram, const MetricLabels& labels = {});
  void single(const char* name, const char* help, Type type, double value) {
    family(name, help, type);
    add(value);
  }

  // The Prometheus text format, version 0.0.4.
  std::string text() const;

 private:
  struct Families;
  MetricLabels common_;
  std::unique_ptr<Families> families_;
};

// Of HTTP answers with that text.
inline constexpr char kExpositionContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace lockstep
