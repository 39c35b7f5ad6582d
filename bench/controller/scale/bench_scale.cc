// Measures the controller's own cost with more jobs and agents than one machine can run. The
// cluster is simulated, and so is time: the clock advances by the CPU time that the controller
// uses. Prints a table. Its times are simulated, except for the controller's work, which is
// measured.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>

#include "bench/controller/scale/counted_heap.h"
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
  int64_t processes = 1;
  int64_t large = 4'096;
  double qps = 50;
  double burst = 100;
  double seconds = 60;
  int restarts = 3;
  double report_every = 0.5;
  bool agents_are_old = false;
  int failing = 100;
  int coming = 60;
};

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double mib(double bytes) {
  return bytes / (1 << 20);
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

double quantile_ms(std::vector<double>& values_ms, double share) {
  if (values_ms.empty()) return 0;
  const auto last = static_cast<double>(values_ms.size() - 1);
  const auto nth = values_ms.begin() + static_cast<std::ptrdiff_t>(share * last);
  std::nth_element(values_ms.begin(), nth, values_ms.end());
  return *nth;
}

// Describes the table that phase() prints.
constexpr char kHead[] =
    "| what | seconds | reports/s | reconciles | reconcile p50 and p99, ms | wait in the queue, ms "
    "| "
    "report to plan p50, p99 and max, ms | requests | CPU, % of a core | controller's heap at its "
    "peak and after, MiB | process resident, MiB "
    "|\n|---|---|---|---|---|---|---|---|---|---|---|\n";

class Run {
 public:
  explicit Run(const Flags& flags)
      : flags_(flags),
        cluster_(time_.world(), time_.loop(),
                 {.report_every = from_seconds(flags.report_every),
                  .agents_are_old = flags.agents_are_old,
                  .rate = {flags.qps, flags.burst}}) {}
  ~Run() {
    const HeapOwner before = set_heap_owner(HeapOwner::kController);
    controller_.reset();
    set_heap_owner(before);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void jobs() {
    for (int64_t i = 0; i < flags_.jobs; ++i) add_job();
    start();
    const auto all = static_cast<size_t>(flags_.jobs * flags_.nodes);
    phase("all created at once", 1e7, [&] { return cluster_.training() == all; });
    phase("until no job waits", 120, [&] { return controller_->queue().size() == 0; });
    phase("all train", flags_.seconds, [] { return false; });
    goes_ = true;
    come_and_go(0);
    const std::string rates = std::to_string(flags_.failing) + " ranks fail and " +
                              std::to_string(flags_.coming) + " jobs come and go in a minute";
    phase(rates.c_str(), flags_.seconds, [] { return false; });
    goes_ = false;
    phase("(pause)", 30, [] { return false; });
    restart();
    phase("the controller began anew", 1e4,
          [&] { return controller_->queue().size() == 0 && controller_->agents_watched() >= all; });
    phase("all train", flags_.seconds, [] { return false; });
  }

  void large_job() {
    cluster_.add_job({.name = "large", .nodes = flags_.large});
    start();
    const auto all = static_cast<size_t>(flags_.large);
    for (int64_t round = 1; round <= 1 + flags_.restarts; ++round) {
      const std::string what =
          round == 1 ? "one job of " + std::to_string(flags_.large) + " nodes, to training"
                     : "a rank of it killed, to training";
      phase(what.c_str(), 1e4, [&] { return cluster_.training() == all; });
      if (cluster_.training() != all) {
        std::printf("not all nodes train: %zu\n", cluster_.training());
        std::exit(EXIT_FAILURE);
      }
      phase("(pause)", 5, [] { return false; });
      cluster_.fail_rank("large", 7 * round);
    }
  }

 private:
  std::string add_job() {
    std::string name = "job-" + std::to_string(added_++);
    cluster_.add_job({.name = name, .nodes = flags_.nodes, .processes = flags_.processes});
    running_.push_back(name);
    return name;
  }

  // Every second some ranks fail, some jobs end, and others begin. A job is removed half a minute
  // after its end.
  void come_and_go(int second) {
    if (!goes_) return;
    const auto share = [second](int per_minute) {
      return per_minute * (second + 1) / 60 - per_minute * second / 60;
    };
    for (int i = 0; i < share(flags_.failing); ++i) {
      const auto which = random_.below(running_.size());
      cluster_.fail_rank(running_[which], static_cast<int64_t>(random_.below(2)) % flags_.nodes);
    }
    for (int i = 0; i < share(flags_.coming); ++i) {
      const std::string name = running_.front();
      running_.pop_front();
      cluster_.finish_job(name);
      time_.world().after(std::chrono::seconds(30), [this, name] { cluster_.remove_job(name); });
      add_job();
    }
    time_.world().after(std::chrono::seconds(1), [this, second] { come_and_go(second + 1); });
  }

  void start() {
    loop::ControllerOptions options;
    options.key = "secret";
    options.worked = [] { return from_seconds(cpu_seconds()); };
    options.progress.per_second = flags_.qps * 0.1;
    options.plan = [this](const plan::Observed& seen, TimePoint now, const plan::Limits& limits) {
      plan::Plan plan = plan::plan(seen, now, limits);
      if (const auto reported_at = cluster_.take_report(seen.job.metadata.name)) {
        reactions_ms_.push_back(1e3 * to_seconds(time_.now() - *reported_at));
      }
      return plan;
    };
    const HeapOwner before = set_heap_owner(HeapOwner::kController);
    controller_.emplace(cluster_, cluster_, time_.loop(), random_, std::move(options), [] {});
    controller_->start();
    set_heap_owner(before);
  }

  // Replaces the controller. Prints the memory in between, which is the played cluster's.
  void restart() {
    controller_.reset();
    malloc_trim(0);
    std::printf("| (no controller) | | | | | | | | | %.0f | %.0f |\n",
                mib(static_cast<double>(heap_use(HeapOwner::kController).bytes)),
                mib(resident_bytes()));
    start();
  }

  double requests() const {
    double sum = 0;
    for (const auto& [what, count] : cluster_.requests()) sum += static_cast<double>(count);
    return sum;
  }

  // Runs until `done`, for at most `seconds` of simulated time. Prints a line of the table.
  void phase(const char* what, double seconds, const std::function<bool()>& done) {
    const TimePoint begin = time_.now();
    const loop::QueueMetrics& metrics = controller_->queue().metrics();
    const std::vector<uint64_t> work = metrics.work_seconds.counts();
    const std::vector<uint64_t> wait = metrics.queue_seconds.counts();
    const double requests_before = requests();
    const std::map<std::string, int64_t> each_before = cluster_.requests();
    const int64_t reports_before = cluster_.reports();
    const double worked_before = time_.worked_seconds();
    reactions_ms_.clear();
    reset_heap_peaks();
    time_.run(seconds, done);
    const double took = to_seconds(time_.now() - begin);
    const double cpu = time_.worked_seconds() - worked_before;
    uint64_t reconciles = 0;
    for (size_t i = 0; i < work.size(); ++i)
      reconciles += metrics.work_seconds.counts()[i] - work[i];
    const HeapUse heap = heap_use(HeapOwner::kController);
    std::printf(
        "| %s | %.2f | %.0f | %llu | %.2f and %.2f | %.2f and %.2f | %.2f, %.2f and %.1f | %.0f | "
        "%.1f | %.0f and %.0f | %.0f |\n",
        what, took, static_cast<double>(cluster_.reports() - reports_before) / took,
        static_cast<unsigned long long>(reconciles), quantile_ms(metrics.work_seconds, work, 0.5),
        quantile_ms(metrics.work_seconds, work, 0.99),
        quantile_ms(metrics.queue_seconds, wait, 0.5),
        quantile_ms(metrics.queue_seconds, wait, 0.99), quantile_ms(reactions_ms_, 0.5),
        quantile_ms(reactions_ms_, 0.99), quantile_ms(reactions_ms_, 1),
        requests() - requests_before, took > 0 ? 100 * cpu / took : 0,
        mib(static_cast<double>(heap.peak_bytes)), mib(static_cast<double>(heap.bytes)),
        mib(resident_bytes()));
    for (const auto& [name, count] : cluster_.requests()) {
      const auto before = each_before.find(name);
      const int64_t since = count - (before == each_before.end() ? 0 : before->second);
      if (since > 0)
        std::fprintf(stderr, "  %s: %lld\n", name.c_str(), static_cast<long long>(since));
    }
    std::fflush(stdout);
  }

  Flags flags_;
  PlayedTime time_;
  Random random_{1};
  PlayedCluster cluster_;
  std::optional<loop::Controller> controller_;
  int64_t added_ = 0;
  std::deque<std::string> running_;  // jobs, by age
  bool goes_ = false;
  std::vector<double> reactions_ms_;
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
  app.add_option("--processes", flags.processes, "Ranks of each pod")->capture_default_str();
  app.add_option("--large", flags.large, "Nodes of one job; 0: none")->capture_default_str();
  app.add_option("--restarts", flags.restarts, "Of the large job")->capture_default_str();
  app.add_option("--qps", flags.qps, "As the controller's")->capture_default_str();
  app.add_option("--burst", flags.burst, "As the controller's")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "Simulated, of each phase that has no end")
      ->capture_default_str();
  app.add_option("--report-every", flags.report_every,
                 "Seconds between two steps that an agent publishes, which are 0.5 at least")
      ->capture_default_str();
  app.add_flag("--old-agents", flags.agents_are_old, "Agents tell every published step at once");
  app.add_option("--failing", flags.failing, "Ranks that fail in a minute")->capture_default_str();
  app.add_option("--coming", flags.coming, "Jobs that end, and others that begin, in a minute")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  set_log_options({.minimum = LogLevel::kError});
  std::printf("%s", bench::kHead);
  {
    bench::Run run(flags);
    run.jobs();
  }
  if (flags.large > 0) {
    bench::Run run(flags);
    run.large_job();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("bench_scale", program, argc, argv);
}
