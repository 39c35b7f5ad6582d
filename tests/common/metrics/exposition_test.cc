#include "common/metrics/exposition.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/metrics/process.h"

namespace lockstep {
namespace {

TEST(Histogram, CountsByUpperBoundsThatAreInclusive) {
  Histogram histogram({1, 2, 5});
  for (const double value : {0.5, 1.0, 1.5, 5.0, 6.0}) histogram.observe(value);
  EXPECT_EQ(histogram.counts(), (std::vector<uint64_t>{2, 1, 1, 1}));
  EXPECT_EQ(histogram.count(), 5u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 14);
}

TEST(Histogram, BoundsAreOneTwoAndFiveTimesThePowersOfTen) {
  const std::vector<double> bounds = bounds_seconds(0.1, 20);
  ASSERT_EQ(bounds.size(), 8u);
  EXPECT_DOUBLE_EQ(bounds.front(), 0.1);
  EXPECT_NEAR(bounds[2], 0.5, 1e-12);
  EXPECT_NEAR(bounds.back(), 20, 1e-12);
}

TEST(Exposition, WritesTheTextFormat) {
  Exposition out(MetricLabels{{"job", "a\"b"}});
  out.family("x_total", "Things", Exposition::Type::kCounter);
  out.add(3, {{"kind", "y"}});
  out.add(std::nan(""));
  out.family("empty", "Nothing", Exposition::Type::kGauge);
  Histogram histogram({1, 2});
  histogram.observe(1.5);
  histogram.observe(7);
  out.family("h_seconds", "Times", Exposition::Type::kHistogram);
  out.add(histogram);
  EXPECT_EQ(out.text(),
            "# HELP x_total Things\n"
            "# TYPE x_total counter\n"
            "x_total{job=\"a\\\"b\",kind=\"y\"} 3\n"
            "# HELP h_seconds Times\n"
            "# TYPE h_seconds histogram\n"
            "h_seconds_count{job=\"a\\\"b\"} 2\n"
            "h_seconds_sum{job=\"a\\\"b\"} 8.5\n"
            "h_seconds_bucket{job=\"a\\\"b\",le=\"1\"} 0\n"
            "h_seconds_bucket{job=\"a\\\"b\",le=\"2\"} 1\n"
            "h_seconds_bucket{job=\"a\\\"b\",le=\"+Inf\"} 2\n");
}

TEST(Exposition, AProcessKnowsItsOwnMemoryAndDescriptors) {
  Exposition out(MetricLabels{});
  add_process_metrics(out);
  for (const char* name :
       {"process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "}) {
    EXPECT_NE(out.text().find(name), std::string::npos) << out.text();
  }
}

}  // namespace
}  // namespace lockstep
