// Measures the controller's own cost with more jobs and agents than one machine can run. The
// cluster is simulated, and so is time: the clock advances by the CPU time that the controller
// uses. Prints a table. Its times are simulated, except for the controller's work, which is
// measured.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "bench/controller/scale/played_cluster.h"
#include "bench/controller/scale/played_time.h"
#include "common/base/log.h"
#include "common/base/run_main.h"
#include "controller/loop/controller.h"

namespace lockstep::bench {
namespace {

struct Flags {
  int64_t jobs = 10'000;
  int64_t nodes = 5;
  int64_t large = 4'096;
  double qps = 50;
  double burst = 100;
  double seconds = 60;
  int restarts = 3;
};

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Returns a quantile of the observations since `before`, in ms: the upper bound of the bucket that
// contains it.
double quantile_ms(const Histogram& now, const std::vector<uint64_t>& before, double share) {
  uint64_t all = 0;
  for (size_t i = 0; i < before.size(); ++i) all += now.counts()[i] - before[i];
  uint64_t seen = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    seen += now.counts()[i] - before[i];
    const bool is_last = i >= now.bounds().size();
    if (static_cast<double>(seen) >= share * static_cast<double>(all)) {
      return 1e3 * (is_last ? now.bounds().back() : now.bounds()[i]);
    }
  }
  return 0;
}

class Run {
 public:
  explicit Run(const Flags& flags)
      : flags_(flags), cluster_(world_, loop_, {.rate = {flags.qps, flags.burst}}) {}

  void jobs() {
    for (int64_t i = 0; i < flags_.jobs; ++i) {
      cluster_.add_job({.name = "job-" + std::to_string(i), .nodes = flags_.nodes});
    }
    start();
    const auto all = static_cast<size_t>(flags_.jobs * flags_.nodes);
    phase("all created at once", 1e7, [&] { return cluster_.training() == all; });
    phase("until no job waits", 1e5, [&] { return controller_->queue().size() == 0; });
    phase("each agent reports once in 10 s", flags_.seconds, [] { return false; });
    restart();
    phase("the controller began anew", 1e4,
          [&] { return controller_->queue().size() == 0 && controller_->agents_watched() == all; });
    phase("reports go on", flags_.seconds, [] { return false; });
  }

  void large_job() {
    cluster_.add_job({.name = "large", .nodes = flags_.large});
    const auto all = static_cast<size_t>(flags_.large);
    for (int64_t round = 1; round <= 1 + flags_.restarts; ++round) {
      const std::string what =
          round == 1 ? "one job of " + std::to_string(flags_.large) + " nodes, to training"
                     : "a rank of it killed, to training";
      phase(what, 1e4, [&] { return cluster_.training() == all; });
      if (cluster_.training() != all) {
        std::printf("not all nodes train: %zu\n", cluster_.training());
        std::exit(EXIT_FAILURE);
      }
      phase("(pause)", 5, [] { return false; });
      cluster_.fail_rank("large", 7 * round);
    }
  }

  void start() {
    loop::ControllerOptions options;
    options.key = "secret";
    options.progress.per_second = flags_.qps * 0.1;
    controller_.emplace(cluster_, cluster_, loop_, random_, std::move(options), [] {});
    controller_->start();
  }

 private:
  // Replaces the controller. Prints the memory in between, which is the played cluster's.
  void restart() {
    controller_.reset();
    malloc_trim(0);
    const double without = resident_bytes();
    std::printf("| (no controller) | | | | | | | %.0f |\n", without / 1e6);
    start();
  }

  double requests() const {
    double sum = 0;
    for (const auto& [what, count] : cluster_.requests()) sum += static_cast<double>(count);
    return sum;
  }

  // Runs until `done`, for at most `seconds` of simulated time. Prints a line of the table.
  void phase(const std::string& what, double seconds, const std::function<bool()>& done) {
    const TimePoint begin = clock_.now();
    const std::vector<uint64_t> work = controller_->queue().metrics().work_seconds.counts();
    const std::vector<uint64_t> wait = controller_->queue().metrics().queue_seconds.counts();
    const double requests_before = requests();
    const std::map<std::string, int64_t> each_before = cluster_.requests();
    double cpu = 0;
    while (clock_.now() - begin < from_seconds(seconds) && !done()) {
      cpu += turn(begin + from_seconds(seconds));
    }
    const double took = to_seconds(clock_.now() - begin);
    const Histogram& work_now = controller_->queue().metrics().work_seconds;
    const Histogram& wait_now = controller_->queue().metrics().queue_seconds;
    uint64_t reconciles = 0;
    for (size_t i = 0; i < work.size(); ++i) reconciles += work_now.counts()[i] - work[i];
    std::printf("| %s | %.2f | %llu | %.2f and %.2f | %.2f and %.2f | %.0f | %.1f | %.0f |\n",
                what.c_str(), took, static_cast<unsigned long long>(reconciles),
                quantile_ms(work_now, work, 0.5), quantile_ms(work_now, work, 0.99),
                quantile_ms(wait_now, wait, 0.5), quantile_ms(wait_now, wait, 0.99),
                requests() - requests_before, took > 0 ? 100 * cpu / took : 0,
                resident_bytes() / 1e6);
    for (const auto& [name, count] : cluster_.requests()) {
      const auto before = each_before.find(name);
      const int64_t since = count - (before == each_before.end() ? 0 : before->second);
      if (since > 0)
        std::fprintf(stderr, "  %s: %lld\n", name.c_str(), static_cast<long long>(since));
    }
    std::fflush(stdout);
  }

  // Runs the next event, or stops at `end`. Returns the CPU seconds that the controller used for
  // it.
  double turn(TimePoint end) {
    TimePoint next = end;
    if (const auto due = world_.next()) next = std::min(next, *due);
    if (const auto due = loop_.next()) next = std::min(next, *due);
    if (next > clock_.now()) clock_.advance(next - clock_.now());
    world_.run_due();
    const double begin = cpu_seconds();
    loop_.run_due();
    const double cpu = cpu_seconds() - begin;
    clock_.advance(from_seconds(cpu));
    return cpu;
  }

  Flags flags_;
  ManualClock clock_;
  loop::Timers world_{clock_};
  loop::Timers loop_{clock_};
  Random random_{1};
  PlayedCluster cluster_;
  std::optional<loop::Controller> controller_;
};

}  // namespace
}  // namespace lockstep::bench

namespace {

int program(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::bench;
  bench::Flags flags;
  CLI::App app("What the controller costs with many jobs and agents (simulated cluster).");
  app.add_option("--jobs", flags.jobs, "Jobs")->capture_default_str();
  app.add_option("--nodes", flags.nodes, "Pods of each")->capture_default_str();
  app.add_option("--large", flags.large, "Nodes of one job; 0: none")->capture_default_str();
  app.add_option("--restarts", flags.restarts, "Of the large job")->capture_default_str();
  app.add_option("--qps", flags.qps, "As the controller's")->capture_default_str();
  app.add_option("--burst", flags.burst, "As the controller's")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "Simulated, of each phase that has no end")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  set_log_options({.minimum = LogLevel::kError});
  std::printf(
      "| what | seconds | reconciles | reconcile p50 and p99, ms | wait in the queue, ms | "
      "requests | "
      "CPU, %% of a core | resident, MB |\n|---|---|---|---|---|---|---|---|\n");
  {
    bench::Run run(flags);
    run.jobs();
  }
  if (flags.large > 0) {
    bench::Run run(flags);
    run.start();
    run.large_job();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("bench_scale", program, argc, argv);
}
