#include "bench/kernels/timing.h"

#include <algorithm>
#include <chrono>

namespace lockstep::bench {

namespace {

Result<int> calls_of_a_sample(Stopwatch& watch, const BenchDevice& bench_device,
                              const std::function<void()>& call) {
  if (bench_device.on_cpu()) return 1;
  constexpr double kSampleSeconds = 2e-3, kCallsMax = 1000;
  TRY_ASSIGN(const double first, watch.seconds(1, call));
  if (first > kSampleSeconds) return 1;
  constexpr int kTries = 5;
  TRY_ASSIGN(const double tries, watch.seconds(kTries, call));
  const double each = std::max(tries / kTries, 1e-9);
  return static_cast<int>(std::clamp(kSampleSeconds / each, 1.0, kCallsMax));
}

}  // namespace

Spread spread_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {seconds[seconds.size() / 4], seconds[seconds.size() / 2],
          seconds[seconds.size() * 3 / 4]};
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<Stopwatch> Stopwatch::create(BenchDevice& bench_device) {
  Stopwatch watch(bench_device);
  if (!bench_device.on_cpu()) {
    TRY_ASSIGN(watch.begin_, kernels::Event::create_timed(bench_device.device()));
    TRY_ASSIGN(watch.end_, kernels::Event::create_timed(bench_device.device()));
  }
  return watch;
}

Result<double> Stopwatch::seconds(int calls, const std::function<void()>& call) {
  const double begin = now_seconds();
  if (!bench_device_.on_cpu()) TRY(begin_.record(bench_device_.stream.handle()));
  for (int i = 0; i < calls; ++i) call();
  if (bench_device_.on_cpu()) return now_seconds() - begin;
  TRY(end_.record(bench_device_.stream.handle()));
  TRY(bench_device_.stream.synchronize());
  return begin_.seconds_until(end_);
}

Result<std::vector<Spread>> sample(BenchDevice& bench_device,
                                   const std::vector<std::function<void()>>& calls,
                                   const SampleOptions& options) {
  TRY_ASSIGN(Stopwatch watch, Stopwatch::create(bench_device));
  std::vector<int> counts(calls.size(), 1);
  if (options.seconds > 0.0) {
    for (size_t i = 0; i < calls.size(); ++i) {
      TRY(watch.seconds(1, calls[i]));
      TRY_ASSIGN(counts[i], calls_of_a_sample(watch, bench_device, calls[i]));
    }
  }
  std::vector<std::vector<double>> seconds(calls.size());
  const size_t least = options.seconds > 0.0 ? static_cast<size_t>(options.samples_min) : 1;
  const double end = now_seconds() + options.seconds * static_cast<double>(calls.size());
  do {
    for (size_t i = 0; i < calls.size(); ++i) {
      TRY_ASSIGN(const double all, watch.seconds(counts[i], calls[i]));
      seconds[i].push_back(all / counts[i]);
    }
  } while (now_seconds() < end || seconds.front().size() < least);
  std::vector<Spread> spreads;
  for (std::vector<double>& one : seconds) spreads.push_back(spread_of(std::move(one)));
  return spreads;
}

}  // namespace lockstep::bench
