// lives [--first N] [--stride N] [--life NAME] [--sequences N]: lives the lives of jobs (lives.h)
// with a crash of the controller after each of its writes, with stale caches and with each batch of
// events dropped. With --sequences, does N random sequences of users' operations instead
// (user_sequences.h). Exits with 1 if one ends otherwise than it has to.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "common/base/log.h"
#include "common/base/run_main.h"
#include "tests/controller/sim/lives.h"
#include "tests/controller/sim/user_sequences.h"

namespace {

using namespace lockstep;

int do_sequences(uint64_t first, uint64_t count) {
  int failures = 0;
  size_t operations = 0;
  for (uint64_t seed = first + 1; seed <= first + count; ++seed) {
    const sim::SequenceResult result = sim::run_sequence(seed);
    operations += result.operations.size();
    if (result.violation.empty()) continue;
    ++failures;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), result.violation.c_str());
    for (const std::string& operation : result.operations) std::printf("  %s\n", operation.c_str());
    std::fflush(stdout);
  }
  std::printf("%llu sequences of %zu operations, %d failed\n",
              static_cast<unsigned long long>(count), operations, failures);
  return failures == 0 ? 0 : 1;
}

int program(int argc, char** argv) {
  int64_t first = 0;
  int64_t stride = 1;
  std::string name;
  uint64_t sequences = 0;
  CLI::App app("Lives of jobs whose controller crashes after each of its writes");
  app.add_option("--stride", stride, "take every N-th combination")->check(CLI::PositiveNumber);
  app.add_option("--first", first, "from this one on")->check(CLI::NonNegativeNumber);
  app.add_option("--life", name, "this life alone");
  app.add_option("--sequences", sequences, "do this many sequences of users' operations instead");
  CLI11_PARSE(app, argc, argv);
  set_log_options({.minimum = LogLevel::kError});
  if (sequences > 0) return do_sequences(static_cast<uint64_t>(first), sequences);
  const auto begin = std::chrono::steady_clock::now();
  int64_t lives = 0;
  size_t failures = 0;
  for (const sim::Life& life : sim::all_lives()) {
    if (!name.empty() && life.name != name) continue;
    const sim::LifeResult right = sim::live(life, {});
    const sim::LivesResult result = sim::live_all({life}, first, stride);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    std::printf("%-28s %3lld writes, %3lld batches, %6lld lives, %zu failed, %.0f s: %s\n",
                life.name.c_str(), static_cast<long long>(right.writes),
                static_cast<long long>(right.batches), static_cast<long long>(result.lives),
                result.failed.size(), wall.count(), (right.end + ", " + right.details).c_str());
    for (const std::string& failed : result.failed) std::printf("  %s\n", failed.c_str());
    std::fflush(stdout);
    lives += result.lives;
    failures += result.failed.size();
  }
  std::printf("%lld lives, %zu failed\n", static_cast<long long>(lives), failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("lives", program, argc, argv);
}
