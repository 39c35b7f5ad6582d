// Measures how a job of many nodes goes on after it has lost one: how long until all ranks train
// again, and what the controller writes meanwhile. The cluster and time are simulated: the clock
// advances by the CPU time that the controller uses. Prints a table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/controller/scale/played_cluster.h"
#include "bench/controller/scale/played_time.h"
#include "common/api/conditions.h"
#include "common/base/log.h"
#include "common/base/run_main.h"
#include "common/base/sha256.h"
#include "controller/loop/controller.h"

namespace lockstep::bench {
namespace {

constexpr char kJob[] = "large";
constexpr double kSecondsMax = 600;  // simulated, of each phase

struct Flags {
  int64_t nodes = 4'096;
  double qps = 50;
  double burst = 100;
  int turns = 3;
  double startup = 3;
  double kubelet = 1;
  int64_t writes_max = 32;
};

using Counts = std::map<std::string, int64_t>;

// From the loss to the moment when all ranks of a round train, and status says so.
struct Recovery {
  double notice_seconds = 0;  // until a plan records the loss
  double formed_seconds = 0;  // until a plan writes the round
  double seconds = 0;
  double after_notice_seconds = 0;
  double cpu_seconds = 0;
  Counts requests;
  int64_t assignments = 0;
};

struct Turn {
  Recovery next;                      // to the next round
  std::optional<Recovery> all_again;  // to a round of all nodes, if `next` has fewer
};

class Run {
 public:
  Run(const Flags& flags, bool is_elastic, Loss loss)
      : flags_(flags),
        loss_(loss),
        cluster_(time_.world(), time_.loop(),
                 {.startup = from_seconds(flags.startup),
                  .kubelet = from_seconds(flags.kubelet),
                  .rate = {.per_second = flags.qps, .burst = flags.burst}}) {
    PlayedJob job{.name = kJob, .nodes = flags.nodes};
    if (is_elastic) job.elastic = ElasticSpec{.min = 1, .max = flags.nodes};
    cluster_.add_job(std::move(job));
  }

  // Returns whether the job trains.
  bool start() {
    loop::ControllerOptions options;
    options.key = "secret";
    options.worked = [] { return from_seconds(cpu_seconds()); };
    options.progress.per_second = flags_.qps * 0.1;
    options.plan = [this](const plan::Observed& seen, TimePoint now, const plan::Limits& limits) {
      plan::Plan plan = plan::plan(seen, now, limits);
      watch(seen.job.status, plan);
      return plan;
    };
    controller_.emplace(cluster_, cluster_, time_.loop(), random_, std::move(options), [] {});
    controller_->start();
    return time_.run(kSecondsMax, [this] { return all_train(1, flags_.nodes); });
  }

  // Returns what the agents of the newest round were told, once the job trains.
  const Assignment& assignment() const { return *assignment_; }

  // Lets the job train for a while, and takes one node away from it; nullopt if it does not train
  // again.
  std::optional<Turn> lose(int64_t node_index) {
    time_.run(25, [] { return false; });
    const int64_t round = status_number("round");
    noticed_at_.reset();
    formed_at_.reset();
    awaits_notice_ = true;
    const Start loss = start_here();
    cluster_.lose_node(kJob, node_index, loss_);
    if (!time_.run(kSecondsMax, [&] { return all_train(round + 1, 1); })) return std::nullopt;
    Turn turn{.next = recovery_since(loss), .all_again = {}};
    if (status_members() == flags_.nodes) return turn;
    if (!time_.run(kSecondsMax, [&] { return all_train(round + 2, flags_.nodes); })) {
      return std::nullopt;
    }
    turn.all_again = recovery_since(loss);
    return turn;
  }

 private:
  struct Start {
    TimePoint at{};
    double worked = 0;
    Counts requests;
    int64_t assignments = 0;
  };

  Start start_here() const {
    return {.at = time_.now(),
            .worked = time_.worked_seconds(),
            .requests = cluster_.requests(),
            .assignments = cluster_.assignments()};
  }

  Recovery recovery_since(const Start& start) const {
    const TimePoint now = time_.now();
    const TimePoint noticed = noticed_at_.value_or(now);
    Recovery recovery{.notice_seconds = to_seconds(noticed - start.at),
                      .formed_seconds = to_seconds(formed_at_.value_or(now) - start.at),
                      .seconds = to_seconds(now - start.at),
                      .after_notice_seconds = to_seconds(now - noticed),
                      .cpu_seconds = time_.worked_seconds() - start.worked,
                      .requests = {},
                      .assignments = cluster_.assignments() - start.assignments};
    for (const auto& [what, count] : cluster_.requests()) {
      const auto before = start.requests.find(what);
      const int64_t since = count - (before == start.requests.end() ? 0 : before->second);
      if (since > 0) recovery.requests[what] = since;
    }
    return recovery;
  }

  // Notes when a plan writes the loss, when one writes a round that is formed, and the assignment.
  void watch(const TrainingJobStatus& before, const plan::Plan& plan) {
    for (const plan::Action& action : plan.actions) {
      if (const auto* put = std::get_if<plan::PutAssignment>(&action))
        assignment_ = put->assignment;
      const auto* write = std::get_if<plan::WriteStatus>(&action);
      if (write == nullptr) continue;
      const TrainingJobStatus& after = write->status;
      if (awaits_notice_ && after.lastFailure &&
          (!before.lastFailure || after.lastFailure->number != before.lastFailure->number)) {
        awaits_notice_ = false;
        noticed_at_ = time_.now();
      }
      const bool is_formed = !after.worldHash.empty() && after.worldHash != before.worldHash;
      if (is_formed) formed_at_ = time_.now();
    }
  }

  const Json& status() const {
    static const Json kNone = Json::object();
    const Json* job = cluster_.store().find(loop::kTrainingJobs, std::string("default/") + kJob);
    const Json* status = job == nullptr ? nullptr : find_member(*job, "status");
    return status == nullptr ? kNone : *status;
  }

  int64_t status_number(std::string_view key) const { return int_or(status(), key, 0); }

  bool is_running() const {
    const Json* conditions = find_member(status(), "conditions");
    if (conditions == nullptr) return false;
    return std::any_of(conditions->begin(), conditions->end(), [](const Json& condition) {
      return string_or(condition, "type", "") == kRunning &&
             string_or(condition, "status", "") == "True";
    });
  }

  // Returns the nodes that take part in the round.
  int64_t status_members() const {
    const Json* rendezvous = find_member(status(), "rendezvous");
    return rendezvous == nullptr ? 0 : int_or(*rendezvous, "worldSize", 0);
  }

  bool all_train(int64_t round, int64_t members_min) const {
    if (status_number("round") < round || !is_running()) return false;
    const int64_t members = status_members();
    return members >= members_min && std::cmp_equal(cluster_.training(), members);
  }

  const Flags flags_;
  const Loss loss_;
  PlayedTime time_;
  Random random_{1};
  PlayedCluster cluster_;
  std::optional<loop::Controller> controller_;
  std::shared_ptr<const Assignment> assignment_;
  bool awaits_notice_ = false;
  std::optional<TimePoint> noticed_at_;
  std::optional<TimePoint> formed_at_;
};

bool is_write(const std::string& request) {
  return !request.starts_with("read ");
}

int64_t writes(const Recovery& recovery) {
  int64_t sum = 0;
  for (const auto& [what, count] : recovery.requests) sum += is_write(what) ? count : 0;
  return sum;
}

std::string text_of(const Counts& requests) {
  std::string text;
  for (const auto& [what, count] : requests) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  }
  return text;
}

std::string spread(const std::vector<Recovery>& all, double Recovery::*column) {
  std::vector<double> values;
  for (const Recovery& each : all) values.push_back(each.*column);
  std::ranges::sort(values);
  char text[100];
  std::snprintf(text, sizeof text, "%.2f (%.2f to %.2f)", values[values.size() / 2], values.front(),
                values.back());
  return text;
}

// Prints a line, with the requests of the turn that wrote most.
void print(const std::string& what, const std::vector<Recovery>& all) {
  const Recovery& most = *std::ranges::max_element(all, {}, writes);
  std::printf("| %s | %s | %s | %s | %s | %s | %lld | %s |\n", what.c_str(),
              spread(all, &Recovery::notice_seconds).c_str(),
              spread(all, &Recovery::formed_seconds).c_str(),
              spread(all, &Recovery::seconds).c_str(),
              spread(all, &Recovery::after_notice_seconds).c_str(),
              spread(all, &Recovery::cpu_seconds).c_str(), static_cast<long long>(most.assignments),
              text_of(most.requests).c_str());
  std::fflush(stdout);
}

// Prints what the simulated network does not show: the bytes of an assignment, and the CPU time to
// copy and sign one for each node, which the controller's network thread spends.
void print_sending(const Assignment& assignment, int64_t nodes) {
  const std::string text = dump_json(to_json(assignment));
  const double begin = cpu_seconds();
  size_t bytes = 0;
  for (int64_t i = 0; i < nodes; ++i) {
    const std::string body = text + std::to_string(i);
    bytes += body.size() + sha256(body).size();
  }
  std::printf(
      "\nAn assignment has %.0f kB. Copies and digests of %lld: %.0f MB in %.2f s of CPU time.\n",
      static_cast<double>(text.size()) / 1e3, static_cast<long long>(nodes),
      static_cast<double>(bytes) / 1e6, cpu_seconds() - begin);
}

bool measure(const Flags& flags, bool is_elastic, Loss loss, const std::string& what) {
  Run run(flags, is_elastic, loss);
  if (!run.start()) {
    std::printf("%s: the job did not begin to train\n", what.c_str());
    return false;
  }
  std::vector<Recovery> next;
  std::vector<Recovery> all_again;
  for (int i = 0; i < flags.turns; ++i) {
    const std::optional<Turn> turn = run.lose((7 + 11 * i) % flags.nodes);
    if (!turn) {
      std::printf("%s: the job did not train again\n", what.c_str());
      return false;
    }
    next.push_back(turn->next);
    if (turn->all_again) all_again.push_back(*turn->all_again);
  }
  print(what, next);
  if (!all_again.empty()) print(what + ", until all nodes train", all_again);
  const auto most = [](const std::vector<Recovery>& all) {
    return all.empty() ? 0 : writes(*std::ranges::max_element(all, {}, writes));
  };
  if (std::max(most(next), most(all_again)) <= flags.writes_max) return true;
  std::printf("%s: more than %lld writes\n", what.c_str(),
              static_cast<long long>(flags.writes_max));
  return false;
}

bool measure_sending(const Flags& flags) {
  Run run(flags, false, Loss::kPodFails);
  if (!run.start()) return false;
  print_sending(run.assignment(), flags.nodes);
  return true;
}

int measure_all(const Flags& flags) {
  struct Named {
    Loss loss;
    const char* name;
  };
  constexpr Named kLosses[] = {{Loss::kPodFails, "its pod fails"},
                               {Loss::kPodGoes, "its pod is removed"},
                               {Loss::kFallsSilent, "its agent falls silent"},
                               {Loss::kMachineStops, "its machine stops"}};
  std::printf(
      "| %lld nodes, one is lost | noticed, s | round in status, s | all train, s | of that, after "
      "the notice, s | controller's CPU, s | assignments | requests |\n"
      "|---|---|---|---|---|---|---|---|\n",
      static_cast<long long>(flags.nodes));
  bool is_good = true;
  for (const bool is_elastic : {false, true}) {
    for (const Named& loss : kLosses) {
      const std::string what = std::string(is_elastic ? "elastic, " : "") + loss.name;
      is_good = measure(flags, is_elastic, loss.loss, what) && is_good;
    }
  }
  is_good = measure_sending(flags) && is_good;
  return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace lockstep::bench

namespace {

int program(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::bench;
  bench::Flags flags;
  CLI::App app("How a large job goes on after it has lost a node (simulated cluster).");
  app.add_option("--nodes", flags.nodes, "Of the job")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  app.add_option("--qps", flags.qps, "As the controller's")->capture_default_str();
  app.add_option("--burst", flags.burst, "As the controller's")->capture_default_str();
  app.add_option("--turns", flags.turns, "Nodes that are lost, one after the other")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--startup", flags.startup, "Seconds until a new pod runs")->capture_default_str();
  app.add_option("--kubelet", flags.kubelet, "Seconds from a pod's end until it is reported")
      ->capture_default_str();
  app.add_option("--writes-max", flags.writes_max, "Fails if a loss causes more writes")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  set_log_options({.minimum = LogLevel::kError});
  return measure_all(flags);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("bench_lost_node", program, argc, argv);
}
