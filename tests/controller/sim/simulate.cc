// simulate --seeds N [--first-seed S] [--jobs J] [--verbose] [--mutant NAME] [--leave-out]: runs
// seeds of the simulation and prints how often each fault and each transition happened. Exits with
// 1 if a seed fails, and prints for each failed seed the command that replays it with the same
// trace.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "common/base/log.h"
#include "common/base/run_main.h"
#include "tests/controller/sim/mutants.h"
#include "tests/controller/sim/round_choices.h"
#include "tests/controller/sim/seeds.h"

namespace {

using namespace lockstep;
using namespace lockstep::sim;

void print_counts(const sim::Counts& counts) {
  for (size_t i = 0; i < sim::kFaults; ++i) {
    std::printf("fault       %-19s %12lld\n", sim::fault_name(static_cast<sim::Fault>(i)).data(),
                static_cast<long long>(counts.faults[i]));
  }
  for (size_t i = 0; i < sim::kTransitions; ++i) {
    std::printf("transition  %-19s %12lld\n",
                sim::transition_name(static_cast<sim::Transition>(i)).data(),
                static_cast<long long>(counts.transitions[i]));
  }
}

sim::Mutation mutation_named(const std::string& name) {
  for (sim::Mutant& mutant : sim::all_mutants()) {
    if (mutant.name == name) return std::move(mutant.mutation);
  }
  return {};
}

CLI::Validator known_mutants() {
  std::vector<std::string> names;
  for (const sim::Mutant& mutant : sim::all_mutants()) names.push_back(mutant.name);
  return CLI::IsMember(names);
}

}  // namespace

namespace {

int program(int argc, char** argv) {
  uint64_t seeds = 100;
  uint64_t first = 1;
  int jobs = static_cast<int>(std::thread::hardware_concurrency());
  bool verbose = false;
  std::string mutant;
  bool leaves_out = false;
  bool has_policies = false;
  CLI::App app("Runs the controller in a simulated cluster, one deterministic run per seed");
  app.add_option("--seeds", seeds, "number of seeds to run")->check(CLI::PositiveNumber);
  app.add_option("--first-seed", first, "first seed to run");
  app.add_option("--jobs", jobs, "number of threads")->check(CLI::Range(1, 256));
  app.add_flag("--verbose", verbose, "print the controller's log; runs on one thread");
  CLI::Option* planted = app.add_option("--mutant", mutant, "plant this bug in the controller")
                             ->check(known_mutants());
  app.add_flag("--leave-out", leaves_out, "rounds leave out nodes")->excludes(planted);
  app.add_flag("--network-policies", has_policies, "jobs have NetworkPolicies");
  CLI11_PARSE(app, argc, argv);
  set_log_options({.minimum = verbose ? LogLevel::kDebug : LogLevel::kError});
  const auto begin = std::chrono::steady_clock::now();
  sim::Mutation mutation = leaves_out ? leaving_out_nodes() : mutation_named(mutant);
  if (has_policies) mutation.limits.network_policies.emplace();
  const sim::CampaignResult result = sim::run_seeds(first, seeds, verbose ? 1 : jobs, mutation);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  print_counts(result.counts);
  std::printf(
      "%lld seeds, %lld jobs, %lld faults, %lld events, %.1f simulated hours, "
      "trace %016llx, %.1f s\n",
      static_cast<long long>(result.counts.seeds), static_cast<long long>(result.counts.jobs),
      static_cast<long long>(result.counts.all_faults()),
      static_cast<long long>(result.counts.events), result.counts.simulated_seconds / 3600,
      static_cast<unsigned long long>(result.trace_hash), wall.count());
  for (const sim::SeedResult& failed : result.failed) {
    std::printf("seed %llu failed, trace %016llx: %s\nreplay: %s --seeds 1 --first-seed %llu\n",
                static_cast<unsigned long long>(failed.seed),
                static_cast<unsigned long long>(failed.trace_hash), failed.violation.c_str(),
                argv[0], static_cast<unsigned long long>(failed.seed));
  }
  return result.failed.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("simulate", program, argc, argv);
}
