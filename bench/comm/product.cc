// bench_comm_product: checks every combination of operation, reduction, type, group, size,
// algorithm, transport, root, in-place or not, with and without an overlapping group at the same
// time, small and large frames. Each case is compared with a plain loop. The tests run a subset in
// which every pair of these values meets. The full product takes hours, so it runs in parts:
//
// clang-format off
//   bench_comm_product [--part I/N] [--seconds S] [--seed N]  # part I of N, for at most S seconds
//   bench_comm_product --case INDEX                           # one case, as a failure printed it
// clang-format on
//
// Ranks are threads. The seed shuffles the cases, so that a run that ends early has covered a bit
// of everything. Exits with 1 at the first failure.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/run_main.h"
#include "tests/agent/comm/cases.h"
#include "tests/agent/comm/covering.h"
#include "tests/agent/comm/small_frames.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::bench {
namespace {

using test::Transport;

struct Arguments {
  uint64_t part = 1;
  uint64_t parts = 1;
  uint64_t seconds = 0;  // 0: no limit
  uint64_t seed = 20261122;
  std::optional<uint64_t> only;
};

bool read(std::string_view text, uint64_t& value) {
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && at == text.data() + text.size();
}

bool read_part(std::string_view text, Arguments& arguments) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && read(text.substr(0, slash), arguments.part) &&
         read(text.substr(slash + 1), arguments.parts) && arguments.part >= 1 &&
         arguments.part <= arguments.parts;
}

std::optional<Arguments> parse(const std::vector<std::string_view>& words) {
  Arguments arguments;
  if (words.size() % 2 != 0) return std::nullopt;
  for (size_t i = 0; i < words.size(); i += 2) {
    bool fine = false;
    if (words[i] == "--part") fine = read_part(words[i + 1], arguments);
    if (words[i] == "--seconds") fine = read(words[i + 1], arguments.seconds);
    if (words[i] == "--seed") fine = read(words[i + 1], arguments.seed);
    if (words[i] == "--case") fine = read(words[i + 1], arguments.only.emplace());
    if (!fine) return std::nullopt;
  }
  return arguments;
}

// Worlds of every transport and size, created on first use.
class Worlds {
 public:
  void run(const test::Case& c) {
    const Key key{c.transport, c.shape.world, c.limits};
    auto found = worlds_.find(key);
    if (found == worlds_.end()) {
      found = worlds_
                  .emplace(key, test::make_world(c.transport, c.shape.world,
                                                 std::chrono::seconds(60), c.limits))
                  .first;
    }
    test::on_all(found->second, [&](comm::Communicator& comm) { test::run_case(c, comm); });
  }

 private:
  using Key = std::tuple<Transport, int, test::Limits>;
  std::map<Key, test::World> worlds_;
};

unsigned long long number(uint64_t value) {
  return value;
}

int run_one(const test::Product& product, uint64_t index, uint64_t seed) {
  if (index >= product.size()) {
    std::fprintf(stderr, "bench_comm_product: there are %llu cases\n", number(product.size()));
    return 2;
  }
  const test::Case only = product.at(index, seed + index);
  Worlds().run(only);
  std::printf("%s\n", describe(only).c_str());
  return testing::Test::HasFailure() ? 1 : 0;
}

int run_part(const test::Product& product, const Arguments& arguments) {
  const SystemClock clock;
  const TimePoint begin = clock.now();
  const auto limit = static_cast<double>(arguments.seconds);
  Worlds worlds;
  uint64_t ran = 0;
  uint64_t at = arguments.part - 1;
  for (; at < product.size(); at += arguments.parts, ++ran) {
    if (limit > 0 && to_seconds(clock.now() - begin) > limit) break;
    const uint64_t index = permute(at, product.size(), arguments.seed);
    worlds.run(product.at(index, arguments.seed + index));
    if (!testing::Test::HasFailure()) continue;
    std::printf("bench_comm_product: --seed %llu --case %llu failed\n", number(arguments.seed),
                number(index));
    return 1;
  }
  std::printf("%llu of %llu cases passed, part %llu of %llu%s, seed %llu, %.0f s\n", number(ran),
              number(product.size()), number(arguments.part), number(arguments.parts),
              at < product.size() ? ", stopped early" : "", number(arguments.seed),
              to_seconds(clock.now() - begin));
  return ran > 0 ? 0 : 1;
}

int run(const Arguments& arguments) {
  const test::Product product({.transports = {Transport::kThreads, Transport::kShared,
                                              Transport::kTcp, Transport::kMixed}});
  if (arguments.only) return run_one(product, *arguments.only, arguments.seed);
  return run_part(product, arguments);
}

}  // namespace
}  // namespace lockstep::bench

namespace {

int program(int argc, char** argv) {
  int flags = 1;
  testing::InitGoogleTest(&flags, argv);
  const auto arguments =
      lockstep::bench::parse(std::vector<std::string_view>(argv + 1, argv + argc));
  if (!arguments) {
    std::fprintf(
        stderr, "usage: bench_comm_product [--part I/N] [--seconds S] [--seed N] [--case INDEX]\n");
    return 2;
  }
  return lockstep::bench::run(*arguments);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("bench_comm_product", program, argc, argv);
}
