#include "tests/controller/sim/seeds.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <thread>

#include "controller/plan/conditions.h"

namespace lockstep::sim {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int64_t kSteps = 15;  // of a job: half a minute
constexpr int kProlongationsMax = 40;
constexpr int64_t kManyRestarts = 10'000;
constexpr int64_t kFewRestarts = 3;
constexpr int64_t kStepsForever = 1'000'000;  // of a job that its deadline has to end

struct Rate {
  Fault fault;
  double most;
};

constexpr Rate kRates[] = {{Fault::kLostRequest, 0.1},
                           {Fault::kLostReply, 0.1},
                           {Fault::kServerError, 0.1},
                           {Fault::kThrottled, 0.1},
                           {Fault::kQuota, 0.1},
                           {Fault::kStorm, 0.005},
                           {Fault::kWebhook, 0.3},
                           {Fault::kPodRefused, 0.3},
                           {Fault::kServerAway, 0.002},
                           {Fault::kConflict, 0.3},
                           {Fault::kWatchCut, 0.1},
                           {Fault::kWatchExpired, 0.5},
                           {Fault::kWatchTooLarge, 0.02},
                           {Fault::kLaggingWatch, 0.1},
                           {Fault::kRepeatedEvents, 0.5},
                           {Fault::kCoalescedEvents, 0.5},
                           {Fault::kLabelLost, 0.005},
                           {Fault::kTerminated, 0.01},
                           {Fault::kSkewedClock, 1.0},
                           {Fault::kRateLimited, 0.1},
                           {Fault::kCrash, 0.1},
                           {Fault::kStall, 0.005},
                           {Fault::kWorkerKilled, 0.02},
                           {Fault::kWorkerOom, 0.01},
                           {Fault::kPodDeleted, 0.01},
                           {Fault::kPodForceDeleted, 0.005},
                           {Fault::kEvicted, 0.005},
                           {Fault::kContainerExit, 0.005},
                           {Fault::kNodeLost, 0.005},
                           {Fault::kOldReport, 0.2},
                           {Fault::kOtherHash, 0.01},
                           {Fault::kLaterRound, 0.01},
                           {Fault::kOtherJob, 0.05},
                           {Fault::kWildNumbers, 0.01},
                           {Fault::kFalseEnd, 0.02},
                           {Fault::kPartition, 0.01},
                           {Fault::kStaggeredPartition, 0.01},
                           {Fault::kClockJump, 0.005},
                           {Fault::kSuspend, 0.005},
                           {Fault::kScale, 0.005},
                           {Fault::kScaleServers, 0.05},
                           {Fault::kIllegalEdit, 0.005},
                           {Fault::kJobReplaced, 0.002},
                           {Fault::kWorkerExit, 0.02},
                           {Fault::kWorkerHung, 0.01},
                           {Fault::kRankSlow, 0.02},
                           {Fault::kLossNotFinite, 0.1},
                           {Fault::kLossSpike, 0.1},
                           {Fault::kRulesEdited, 0.01},
                           {Fault::kBadMachine, 0.2},
                           {Fault::kUnschedulable, 0.2},
                           {Fault::kImagePull, 0.2},
                           {Fault::kJobDeleted, 0.001},
                           {Fault::kJobHeld, 0.001}};

// Enables each kind of fault in every other seed, at a random rate. One seed in four has no faults
// of controllers, and another one in four has none of nodes and jobs.
std::array<double, kFaults> some_rates(Random& random) {
  std::array<double, kFaults> rates{};
  const uint64_t kind = random.below(4);
  for (const Rate& rate : kRates) {
    const bool is_of_controllers = rate.fault < Fault::kWorkerKilled;
    const bool is_left_out = kind == (is_of_controllers ? 0 : 1);
    const bool is_rolled = random.below(2) == 0;
    const double part = is_rolled && !is_left_out ? static_cast<double>(random.uniform()) : 0;
    rates[static_cast<size_t>(rate.fault)] = rate.most * part;
  }
  rates[static_cast<size_t>(Fault::kResume)] = 0.05;
  rates[static_cast<size_t>(Fault::kCorrection)] = 0.05;
  return rates;
}

bool never() {
  return false;
}

bool is_too_quiet(const Counts& counts) {
  return counts.all_faults() < kFaultsMin || counts.events < kEventsMin;
}

// Runs the jobs of one seed from start to end.
class SeedRun {
 public:
  SeedRun(Simulation& simulation, Random& random) : simulation_(simulation), random_(random) {}

  // Returns what is wrong; empty if nothing is.
  std::string run() {
    for (int64_t i = kJobsMin + static_cast<int64_t>(random_.below(2)); i > 0; --i) add_job();
    if (flip(3)) add_job_with_servers();
    run_with_faults();
    simulation_.world.calm_down();
    const bool converged = simulation_.run(time_limit(), [this] { return all_over(); });
    if (is_broken()) return simulation_.world.chance.violations.front();
    if (!converged) return "convergence: a job has not ended";
    for (const Job& job : jobs_) {
      if (has_failed_wrongly(job)) return "convergence: " + job.key + " failed";
    }
    const std::string noise = check_quiescence();
    if (!noise.empty()) return noise;
    return is_too_quiet(simulation_.world.chance.counts) ? "seed: too few faults or events" : "";
  }

 private:
  struct Job {
    std::string key;
    JobOptions options;
  };

  bool flip(uint64_t of) { return random_.below(of) == 0; }
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_.below(static_cast<uint64_t>(most - least + 1)));
  }

  void add_job() {
    JobOptions options{.name = "job-" + std::to_string(jobs_.size()),
                       .nodes = between(1, 4),
                       .steps = kSteps,
                       .max_restarts = flip(8) ? kFewRestarts : kManyRestarts};
    options.is_command = flip(4);
    options.by_rank_zero = options.is_command && flip(2);
    options.saves = !options.is_command && flip(2);
    if (flip(6)) options.ttl = between(0, 60);
    if (flip(4)) options.pending_timeout = between(20, 90);
    if (flip(4)) options.avoid_nodes = between(1, 3);
    if (flip(8)) set_deadline(options);
    if (flip(4)) add_rules(options);
    if (jobs_.size() % 3 == 1) options.elastic_min = 1;
    if (!options.is_command && flip(3)) add_rule_about_slow_ranks(options);
    if (!options.is_command && flip(2)) add_rules_about_losses(options);
    jobs_.push_back({simulation_.world.users.add_job(options), options});
  }

  // Half of them have copies.
  void add_job_with_servers() {
    JobOptions options{.name = "served",
                       .nodes = between(1, 3),
                       .steps = 3 * kSteps,
                       .max_restarts = kManyRestarts,
                       .saves = flip(2),
                       .servers = between(1, 3)};
    if (options.servers > 1) options.copies = between(0, 1);
    jobs_.push_back({simulation_.world.users.add_job(options), options});
  }

  void set_deadline(JobOptions& options) {
    options.active_deadline = between(20, 120);
    // If the clock can jump, the deadline may be hours away.
    const bool is_on_time = simulation_.world.chance.rate(Fault::kClockJump) <= 0;
    if (is_on_time && !options.by_rank_zero && flip(2)) options.steps = kStepsForever;
  }

  void add_rules(JobOptions& options) {
    constexpr const char* kActions[] = {"RestartInPlace", "RecreatePod", "Ignore", "Fail"};
    const uint64_t known = std::size(kActions) - (flip(2) ? 1 : 0);
    const auto add = [&](std::vector<int64_t> codes, const char* event) {
      options.rules.push_back({.exitCodes = std::move(codes),
                               .event = event,
                               .action = kActions[random_.below(known)]});
    };
    add({kExitOfRules}, "");
    if (flip(2)) add({}, "OOMKilled");
    if (flip(2)) add({kExitOfRules, kExitKilled}, "");
    if (flip(4)) {
      options.rules.push_back({.exitCodes = {}, .event = "PodDeleted", .action = "Ignore"});
    }
  }

  void add_rule_about_slow_ranks(JobOptions& options) {
    constexpr const char* kActions[] = {"RecreatePod", "RecreatePod", "RestartInPlace"};
    const char* action = flip(10) ? kFailAction : kActions[random_.below(std::size(kActions))];
    options.rules.push_back({.exitCodes = {},
                             .event = kStraggler,
                             .action = action,
                             .after = std::to_string(between(5, 20)) + "s"});
  }

  void add_rules_about_losses(JobOptions& options) {
    constexpr const char* kActions[] = {kSkipBatch, kRollBack, kSkipBatch, kRollBack, kFailAction};
    const auto add = [&](const char* event, int64_t deviations) {
      const std::string action = kActions[random_.below(std::size(kActions))];
      options.keeps_every_step = options.keeps_every_step || action == kSkipBatch;
      options.saves = options.saves || action == kRollBack;
      options.rules.push_back(
          {.exitCodes = {}, .event = event, .action = action, .deviations = deviations});
    };
    if (!flip(4)) add(kLossNotFinite, 0);
    if (!flip(4)) add(kLossSpike, flip(2) ? 0 : between(3, 20));
    options.has_new_agents = true;
  }

  // Each clock jump may delay anything that waits for a wall time by an hour.
  Duration time_limit() const {
    const Counts& counts = simulation_.world.chance.counts;
    return hours(2 + counts.faults[static_cast<size_t>(Fault::kClockJump)]);
  }

  // Returns whether the job failed although its restarts were not used up, and neither its
  // deadline, a rule, a loss nor failures at every start asked for it; invariants check those.
  bool has_failed_wrongly(const Job& job) const {
    const TrainingJobStatus status = simulation_.status(job.key);
    if (!is_true(status, kFailed)) return false;
    const std::string& reason = find_condition(status, kFailed)->reason;
    constexpr std::string_view kChecked[] = {"DeadlineExceeded", "FailureRule", "NeverStarted",
                                             "NotRetryable"};
    if (std::ranges::find(kChecked, reason) != std::end(kChecked)) return false;
    return status.restarts < job.options.max_restarts;
  }

  bool is_gone(const Job& job) const {
    return simulation_.world.store.find(loop::kTrainingJobs, job.key) == nullptr &&
           !simulation_.world.users.will_recreate(job.key);
  }
  bool is_over(const Job& job) const { return simulation_.is_over(job.key) || is_gone(job); }
  bool are_expired() const {
    return std::all_of(jobs_.begin(), jobs_.end(),
                       [this](const Job& job) { return job.options.ttl < 0 || is_gone(job); });
  }

  // Continues a seed that was too quiet, with a fault that every seed can have.
  void run_with_faults() {
    simulation_.run(minutes(2), never);
    Chance& chance = simulation_.world.chance;
    for (int i = 0; i < kProlongationsMax && is_too_quiet(chance.counts) && !is_broken(); ++i) {
      chance.rate(Fault::kWorkerKilled) = 0.1;
      if (all_over()) add_job();
      simulation_.run(seconds(30), never);
    }
  }

  // Checks that nothing changes after the end. Jobs' ttl and pods' deletion follow the wall clock,
  // which may have jumped.
  std::string check_quiescence() {
    const Nodes& nodes = simulation_.world.nodes;
    const bool are_gone = simulation_.run(time_limit(), [&] { return nodes.live() == 0; });
    if (!are_gone && !is_broken()) return "silence: pods are left after their jobs ended";
    const bool are_deleted = simulation_.run(time_limit(), [this] { return are_expired(); });
    if (!are_deleted && !is_broken()) return "silence: a job was not deleted after its ttl";
    // A pod whose agent has ended, but which still runs, is deleted when its time is over.
    const bool all_ended = simulation_.run(time_limit(), [this] { return no_pod_runs(); });
    if (!all_ended && !is_broken()) return "silence: a pod still runs after its job ended";
    // Controllers that were frozen or back off after errors get the news last.
    simulation_.run(minutes(5), never);
    const int64_t writes = simulation_.world.attempts();
    simulation_.run(seconds(60), never);
    if (is_broken()) return simulation_.world.chance.violations.front();
    if (simulation_.world.attempts() != writes)
      return "silence: the controller writes after all jobs ended";
    if (nodes.live() != 0) return "silence: pods were created after all jobs ended";
    return "";
  }

  bool no_pod_runs() const {
    const auto pods = simulation_.world.store.all(loop::kPods);
    return std::ranges::none_of(pods, [](const auto& entry) {
      const Json& pod = *entry.second;
      const std::string phase = string_or(member(pod, "status"), "phase", "");
      const bool is_over = phase == "Succeeded" || phase == "Failed";
      return !is_over && member(member(pod, "metadata"), "deletionTimestamp").is_null();
    });
  }

  bool is_broken() const { return !simulation_.world.chance.violations.empty(); }
  bool all_over() const {
    return std::all_of(jobs_.begin(), jobs_.end(), [this](const Job& job) { return is_over(job); });
  }

  Simulation& simulation_;
  Random& random_;
  std::vector<Job> jobs_;
};

}  // namespace

SeedResult run_seed(uint64_t seed, const Mutation& mutation) {
  Random random(seed, 7);
  const int replicas = 1 + static_cast<int>(random.below(2));
  Simulation simulation(seed, mutation, replicas);
  Chance& chance = simulation.world.chance;
  chance.rates = some_rates(random);
  simulation.skew_clocks();
  const TimePoint begin = chance.clock.now();
  SeedResult result{.seed = seed, .violation = SeedRun(simulation, random).run()};
  if (!result.violation.empty()) result.violation += "\n" + simulation.describe();
  chance.counts.seeds = 1;
  chance.counts.simulated_seconds = to_seconds(chance.clock.now() - begin);
  result.trace_hash = chance.trace_hash();
  result.counts = chance.counts;
  return result;
}

CampaignResult run_seeds(uint64_t first, uint64_t count, int threads, const Mutation& mutation) {
  CampaignResult all;
  std::mutex mutex;
  std::atomic<uint64_t> next = first;
  const auto work = [&] {
    for (uint64_t seed = next++; seed < first + count; seed = next++) {
      SeedResult result = run_seed(seed, mutation);
      const std::lock_guard lock(mutex);
      all.counts += result.counts;
      all.trace_hash += result.trace_hash;
      if (!result.violation.empty()) all.failed.push_back(std::move(result));
    }
  };
  std::vector<std::jthread> pool;
  for (int i = 0; i < threads; ++i) pool.emplace_back(work);
  pool.clear();
  std::sort(all.failed.begin(), all.failed.end(),
            [](const SeedResult& a, const SeedResult& b) { return a.seed < b.seed; });
  return all;
}

}  // namespace lockstep::sim
