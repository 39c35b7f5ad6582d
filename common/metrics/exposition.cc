#include "common/metrics/exposition.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

MetricType type_of(Exposition::Type type) {
  switch (type) {
    case Exposition::Type::kCounter:
      return MetricType::Counter;
    case Exposition::Type::kGauge:
      return MetricType::Gauge;
    case Exposition::Type::kHistogram:
      return MetricType::Histogram;
  }
  return MetricType::Untyped;
}

ClientMetric labelled(const MetricLabels& common, const MetricLabels& labels) {
  ClientMetric metric;
  for (const auto& [name, text] : common) metric.label.push_back({name, text});
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  return metric;
}

}  // namespace

struct Exposition::Families {
  std::vector<prometheus::MetricFamily> all;
};

Exposition::Exposition(MetricLabels common)
    : common_(std::move(common)), families_(std::make_unique<Families>()) {}

Exposition::~Exposition() = default;

void Exposition::family(const char* name, const char* help, Type type) {
  families_->all.push_back({name, help, type_of(type), {}});
}

void Exposition::add(double value, const MetricLabels& labels) {
  if (!std::isfinite(value)) return;
  ClientMetric metric = labelled(common_, labels);
  if (families_->all.back().type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  families_->all.back().metric.push_back(std::move(metric));
}

void Exposition::add(const Histogram& histogram, const MetricLabels& labels) {
  ClientMetric metric = labelled(common_, labels);
  uint64_t so_far = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    so_far += histogram.counts()[i];
    const bool is_last = i == histogram.bounds().size();
    metric.histogram.bucket.push_back(
        {so_far, is_last ? std::numeric_limits<double>::infinity() : histogram.bounds()[i]});
  }
  metric.histogram.sample_count = so_far;
  metric.histogram.sample_sum = histogram.sum();
  families_->all.back().metric.push_back(std::move(metric));
}

std::string Exposition::text() const {
  std::vector<prometheus::MetricFamily> known;
  for (const prometheus::MetricFamily& family : families_->all) {
    if (!family.metric.empty()) known.push_back(family);
  }
  return prometheus::TextSerializer().Serialize(known);
}

}  // namespace lockstep
