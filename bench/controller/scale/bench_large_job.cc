// Measures whether one job with the most nodes and the largest template hurts others: the memory it
// takes, and the time from an ordinary job's report until that job is planned. Each turn runs in a
// process of its own, without and with the large job. The cluster is simulated (PlayedCluster), and
// so is time; it advances by the CPU time that the controller uses.
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "bench/controller/scale/played_cluster.h"
#include "bench/controller/scale/played_time.h"
#include "common/base/log.h"
#include "common/base/run_main.h"
#include "controller/loop/controller.h"
#include "controller/plan/template_size.h"

namespace lockstep::bench {
namespace {

struct Flags {
  int64_t jobs = 1'000;
  int64_t nodes = 2;
  int64_t large = 4'096;
  double qps = 400;
  double seconds = 60;
  double report_every = 0.5;
  int turns = 3;
  int64_t memory_mib = 512;
};

// Measurements of one turn. The child sends its bytes to the parent.
struct Turn {
  double p50_ms = 0;
  double p99_ms = 0;
  double max_ms = 0;
  double later_p99_ms = 0;  // from when the large job's ranks train
  double later_max_ms = 0;
  double reports = 0;
  double peak_mib = 0;          // of the process, the played cluster included
  double training_seconds = 0;  // simulated, from the start until all ranks train; -1: they did not
};

// Returns a template of the largest size, of variables as users write them.
Json largest_template() {
  constexpr size_t kVariables = 1000;
  Json env = Json::array();
  for (size_t i = 0; i < kVariables; ++i) {
    env.push_back({{"name", "VARIABLE_" + std::to_string(i)}, {"value", "some value"}});
  }
  Json result;
  result["spec"]["containers"] = Json::array({{{"name", "node"}, {"env", std::move(env)}}});
  Json& last = result["spec"]["containers"][0]["env"].back()["value"];
  const size_t bytes = dump_json(result).size();
  if (bytes < plan::kPodTemplateBytesMax) {
    last = last.get<std::string>() + std::string(plan::kPodTemplateBytesMax - bytes, 'x');
  }
  return result;
}

double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto nth = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + nth, values.end());
  return values[static_cast<size_t>(nth)];
}

class Run {
 public:
  Run(const Flags& flags, bool has_large) : flags_(flags), has_large_(has_large) {}

  Turn measure() {
    for (int64_t i = 0; i < flags_.jobs; ++i) {
      cluster_.add_job({.name = "job-" + std::to_string(i), .nodes = flags_.nodes});
    }
    start();
    const auto ordinary = static_cast<size_t>(flags_.jobs * flags_.nodes);
    time_.run(1e5, [&] { return cluster_.training() == ordinary; });
    time_.run(20, [] { return false; });
    const TimePoint begin = time_.now();
    size_t all = ordinary;
    if (has_large_) {
      cluster_.add_job(
          {.name = "large", .nodes = flags_.large, .pod_template = largest_template()});
      all += static_cast<size_t>(flags_.large);
    }
    is_measuring_ = true;
    double training_seconds = -1;
    time_.run(flags_.seconds, [&] {
      if (training_seconds < 0 && cluster_.training() == all) {
        training_seconds = to_seconds(time_.now() - begin);
        later_from_ = reactions_ms_.size();
      }
      return false;
    });
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::vector<double> later(reactions_ms_.begin() + static_cast<std::ptrdiff_t>(later_from_),
                              reactions_ms_.end());
    return {.p50_ms = quantile(reactions_ms_, 0.5),
            .p99_ms = quantile(reactions_ms_, 0.99),
            .max_ms = quantile(reactions_ms_, 1),
            .later_p99_ms = quantile(later, 0.99),
            .later_max_ms = quantile(later, 1),
            .reports = static_cast<double>(reactions_ms_.size()),
            .peak_mib = static_cast<double>(usage.ru_maxrss) / 1024,
            .training_seconds = training_seconds};
  }

 private:
  void start() {
    loop::ControllerOptions options;
    options.key = "secret";
    options.worked = [] { return from_seconds(cpu_seconds()); };
    options.progress.per_second = flags_.qps * 0.1;
    options.plan = [this](const plan::Observed& seen, TimePoint now, const plan::Limits& limits) {
      plan::Plan plan = plan::plan(seen, now, limits);
      const auto reported_at = cluster_.take_report(seen.job.metadata.name);
      if (reported_at && is_measuring_ && seen.job.metadata.name != "large") {
        reactions_ms_.push_back(1e3 * to_seconds(time_.now() - *reported_at));
      }
      return plan;
    };
    controller_.emplace(cluster_, cluster_, time_.loop(), random_, std::move(options), [] {});
    controller_->start();
  }

  Flags flags_;
  bool has_large_;
  PlayedTime time_;
  Random random_{1};
  PlayedCluster cluster_{time_.world(),
                         time_.loop(),
                         {.report_every = from_seconds(flags_.report_every),
                          .rate = {.per_second = flags_.qps, .burst = flags_.qps, .open_max = 64}}};
  bool is_measuring_ = false;
  std::vector<double> reactions_ms_;
  size_t later_from_ = 0;  // first reaction after the large job's ranks began to train
  std::optional<loop::Controller> controller_;
};

// Runs a turn in a child process with the memory limit; nullopt if it died.
std::optional<Turn> run_in_child(const Flags& flags, bool has_large) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return std::nullopt;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto bytes = static_cast<rlim_t>(flags.memory_mib) << 20;
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_DATA, &limit);
    const Turn turn = Run(flags, has_large).measure();
    const bool is_written = ::write(ends[1], &turn, sizeof turn) == sizeof turn;
    std::_Exit(is_written ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  ::close(ends[1]);
  Turn turn;
  const bool is_read = ::read(ends[0], &turn, sizeof turn) == sizeof turn;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return is_read ? std::optional(turn) : std::nullopt;
}

std::string spread(std::vector<Turn> turns, double Turn::*column) {
  std::ranges::sort(turns, {}, column);
  char text[100];
  std::snprintf(text, sizeof text, "%.2f (%.2f to %.2f)", turns[turns.size() / 2].*column,
                turns.front().*column, turns.back().*column);
  return text;
}

size_t heap_bytes() {
  return ::mallinfo2().uordblks;
}

// Prints what the creates of a plan hold, and what one body takes.
void print_plan_memory(int64_t nodes) {
  TrainingJob job;
  job.metadata.name = "large";
  job.spec.podTemplate = largest_template();
  const size_t before = heap_bytes();
  const auto pods = std::make_shared<const plan::PodText>(plan::make_worker_pod(job, {}), "large");
  std::vector<plan::Action> actions;
  for (int64_t i = 0; i < nodes; ++i) {
    actions.emplace_back(
        plan::CreatePod{.name = plan::worker_pod_name("large", i, 1), .index = i, .pods = pods});
  }
  const size_t planned = heap_bytes();
  const std::string body = std::get<plan::CreatePod>(actions.back()).text();
  const size_t made = heap_bytes();
  std::printf(
      "A plan with %lld creates holds %.1f kB for each. A body takes %.0f kB: all of them %.0f "
      "MB.\n\n",
      static_cast<long long>(nodes),
      static_cast<double>(planned - before) / 1e3 / static_cast<double>(nodes),
      static_cast<double>(made - planned) / 1e3,
      static_cast<double>(made - planned) * static_cast<double>(nodes) / 1e6);
  std::fflush(stdout);
}

int compare(const Flags& flags) {
  std::array<std::vector<Turn>, 2> turns;
  for (int i = 0; i < flags.turns; ++i) {
    for (const bool has_large : {false, true}) {
      const std::optional<Turn> turn = run_in_child(flags, has_large);
      if (!turn || (has_large && turn->training_seconds < 0)) {
        std::printf("%s the large job: %s\n", has_large ? "with" : "without",
                    turn ? "not all ranks train" : "the process died");
        return EXIT_FAILURE;
      }
      turns[has_large ? 1 : 0].push_back(*turn);
    }
  }
  std::printf(
      "| %lld jobs of %lld nodes | report to plan, p50, ms | p99, ms | max, ms | p99 once it "
      "trains, ms | max once it trains, ms | reports planned | peak MiB | all train after, s |\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      static_cast<long long>(flags.jobs), static_cast<long long>(flags.nodes));
  for (const bool has_large : {false, true}) {
    const std::vector<Turn>& all = turns[has_large ? 1 : 0];
    std::printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
                has_large ? "with the large job" : "without the large job",
                spread(all, &Turn::p50_ms).c_str(), spread(all, &Turn::p99_ms).c_str(),
                spread(all, &Turn::max_ms).c_str(), spread(all, &Turn::later_p99_ms).c_str(),
                spread(all, &Turn::later_max_ms).c_str(), spread(all, &Turn::reports).c_str(),
                spread(all, &Turn::peak_mib).c_str(), spread(all, &Turn::training_seconds).c_str());
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace lockstep::bench

namespace {

int program(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::bench;
  bench::Flags flags;
  CLI::App app("What a job with the most nodes and the largest template costs others.");
  app.add_option("--jobs", flags.jobs, "Ordinary jobs")->capture_default_str();
  app.add_option("--nodes", flags.nodes, "Nodes of each")->capture_default_str();
  app.add_option("--large", flags.large, "Nodes of the large job")->capture_default_str();
  app.add_option("--qps", flags.qps, "Rate and burst, as the controller's")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "Simulated, from the large job's creation")
      ->capture_default_str();
  app.add_option("--report-every", flags.report_every,
                 "Seconds between two steps that an agent publishes, which are 0.5 at least")
      ->capture_default_str();
  app.add_option("--turns", flags.turns, "Runs without and with the large job, in turn")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--memory-mib", flags.memory_mib, "Limit of the process's data")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  set_log_options({.minimum = LogLevel::kError});
  print_plan_memory(flags.large);
  return compare(flags);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("bench_large_job", program, argc, argv);
}
