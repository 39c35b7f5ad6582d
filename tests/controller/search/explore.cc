// explore [--faults N] [--edits N] [--others N] [--states-max N] [--exhaustive]
//   [--mutant NAME | --mutants]: searches all orders of messages, faults and crashes of a job with
// two nodes (search.h), and prints what it found. With --mutants, searches once with each mistake
// of the simulation planted in the controller. Exits with 1 if an invariant breaks, or with
// --mutants if fewer than ten mistakes are found.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "common/base/log.h"
#include "common/base/run_main.h"
#include "tests/controller/search/search.h"
#include "tests/controller/sim/mutants.h"

namespace {

using namespace lockstep;

class Watch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void print_line(const search::SearchResult& result, const Watch& watch) {
  std::printf("%llu states, %llu moves, %llu goals, depth %zu, %.1f s\n",
              static_cast<unsigned long long>(result.states),
              static_cast<unsigned long long>(result.moves),
              static_cast<unsigned long long>(result.goals), result.depth, watch.seconds());
  std::fflush(stdout);
}

void print_result(const search::SearchResult& result, const Watch& watch) {
  for (size_t i = 0; i < search::kMoveKinds; ++i) {
    const search::Move move{.kind = static_cast<search::MoveKind>(i)};
    std::printf("move  %-16s %12llu\n", move.name().c_str(),
                static_cast<unsigned long long>(result.of_kind[i]));
  }
  print_line(result, watch);
  std::printf("%s\n", result.is_complete ? "complete" : "not complete");
  if (result.violation.empty()) return;
  std::printf("violation: %s\n", result.violation.c_str());
  for (const std::string& move : result.path) std::printf("  %s\n", move.c_str());
}

int search_mutants(search::SearchOptions options) {
  constexpr int kWanted = 10;
  int found = 0;
  const int most = options.faults;
  for (const sim::Mutant& mutant : sim::all_mutants()) {
    const Watch watch;
    search::SearchResult result;
    for (options.faults = 0; options.faults <= most && result.violation.empty(); ++options.faults) {
      result = search::search(mutant.mutation, options);
    }
    found += result.violation.empty() ? 0 : 1;
    std::printf("%-62s %d faults  %9llu states  %5.1f s  %s\n", mutant.name.c_str(),
                options.faults - 1, static_cast<unsigned long long>(result.states), watch.seconds(),
                result.violation.c_str());
    std::fflush(stdout);
  }
  std::printf("%d mistakes found\n", found);
  return found < kWanted ? 1 : 0;
}

const sim::Mutation* mutation_named(const std::vector<sim::Mutant>& mutants,
                                    const std::string& name) {
  static const sim::Mutation kNone;
  for (const sim::Mutant& mutant : mutants) {
    if (mutant.name == name) return &mutant.mutation;
  }
  return name.empty() ? &kNone : nullptr;
}

int program(int argc, char** argv) {
  search::SearchOptions options;
  std::string name;
  bool all_mutants = false;
  bool verbose = false;
  CLI::App app("Searches all orders of messages, faults and crashes of a small world");
  app.add_option("--faults", options.faults, "most faults on a path")->check(CLI::Range(0, 8));
  app.add_option("--edits", options.edits, "of these, most changes of the job by users")
      ->check(CLI::Range(0, 8));
  app.add_option("--others", options.others, "of these, most that are no changes by users")
      ->check(CLI::Range(0, 8));
  app.add_option("--states-max", options.states_max, "give up after this many states");
  CLI::Option* one = app.add_option("--mutant", name, "plant this bug in the controller");
  app.add_flag("--mutants", all_mutants, "plant each bug of the simulation in turn")->excludes(one);
  app.add_flag("--exhaustive", options.is_exhaustive,
               "try all moves in each state, and tell more states apart than needed");
  app.add_flag("--verbose", verbose, "print a line now and then");
  CLI11_PARSE(app, argc, argv);
  set_log_options({.minimum = LogLevel::kError});
  if (all_mutants) return search_mutants(options);
  const std::vector<sim::Mutant> mutants = sim::all_mutants();
  const sim::Mutation* mutation = mutation_named(mutants, name);
  if (mutation == nullptr) {
    std::fprintf(stderr, "no such mutant: %s\n", name.c_str());
    return 2;
  }
  const Watch watch;
  double told = 0;
  options.on_progress = [&](const search::SearchResult& result) {
    constexpr double kBetween = 10;
    if (!verbose || watch.seconds() - told < kBetween) return;
    told = watch.seconds();
    print_line(result, watch);
  };
  const search::SearchResult result = search::search(*mutation, options);
  print_result(result, watch);
  return result.violation.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("explore", program, argc, argv);
}
