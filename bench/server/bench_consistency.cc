// How fast workers are that are slow at times, by the consistency of their parameter server.
//
//   bench_consistency [--kind synchronous|asynchronous|boundedStaleness] [--staleness N] [--backup
//   N]
//     [--slow none|random|one] [--workers N] [--floats N] [--milliseconds N] [--seconds N] [--seed
//     N]
//
// A server and the workers are processes of their own. --milliseconds: a step's time of computing.
// Prints JSON: gradients that counted per second of all workers, steps by worker, late pushes, the
// most clocks that a pull was ahead of the slowest worker, and the seconds at which each worker
// ended its steps.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "bench/server/slow_workers.h"
#include "common/base/json.h"

using namespace lockstep;

namespace {

struct Settings {
  server::Consistency consistency{.kind = server::ConsistencyKind::kAsynchronous};
  bench::SlowWorkers::Options work{.compute = std::chrono::milliseconds(20)};
  uint32_t workers = 8;
  uint64_t floats = 1u << 16;
  int64_t seconds = 10;
};

[[noreturn]] void refuse(const std::string& name, const std::string& value) {
  std::cerr << "unknown option or value: " << name << " " << value << "\n";
  std::exit(2);
}

server::ConsistencyKind kind_of(const std::string& text) {
  if (text == "synchronous") return server::ConsistencyKind::kSynchronous;
  if (text == "asynchronous") return server::ConsistencyKind::kAsynchronous;
  if (text == "boundedStaleness") return server::ConsistencyKind::kBoundedStaleness;
  refuse("--kind", text);
}

bench::Slowness slowness_of(const std::string& text) {
  if (text == "none") return bench::Slowness::kNone;
  if (text == "random") return bench::Slowness::kRandom;
  if (text == "one") return bench::Slowness::kOne;
  refuse("--slow", text);
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string text = i + 1 < argc ? argv[i + 1] : "";
    const uint64_t value = std::strtoull(text.c_str(), nullptr, 10);
    if (name == "--kind")
      settings.consistency.kind = kind_of(text);
    else if (name == "--staleness")
      settings.consistency.staleness = value;
    else if (name == "--backup")
      settings.consistency.backup_workers = static_cast<uint32_t>(value);
    else if (name == "--slow")
      settings.work.slowness = slowness_of(text);
    else if (name == "--workers")
      settings.workers = static_cast<uint32_t>(value);
    else if (name == "--floats")
      settings.floats = value;
    else if (name == "--milliseconds")
      settings.work.compute = std::chrono::milliseconds(value);
    else if (name == "--seconds")
      settings.seconds = static_cast<int64_t>(value);
    else if (name == "--seed")
      settings.work.seed = value;
    else
      refuse(name, text);
  }
  return settings;
}

Json result_of(const Settings& settings, const bench::SlowWorkers& workers, int64_t began) {
  Json steps = Json::array(), ends = Json::array();
  uint64_t counted = 0, late = 0, ahead = 0;
  const int64_t until = began + settings.seconds * 1'000'000'000;
  for (uint32_t worker = 0; worker < settings.workers; ++worker) {
    const bench::WorkerTrace& trace = workers.trace(worker);
    const uint64_t late_ones = trace.late;
    Json seconds = Json::array();
    for (uint64_t step = 0; step < trace.steps && trace.ends[step] <= until; ++step) {
      seconds.push_back(static_cast<double>(trace.ends[step] - began) / 1e9);
    }
    steps.push_back(seconds.size());
    counted += seconds.size() - std::min<uint64_t>(late_ones, seconds.size());
    late += late_ones;
    ahead = std::max<uint64_t>(ahead, trace.ahead);
    ends.push_back(std::move(seconds));
  }
  return {{"perSecond", static_cast<double>(counted) / static_cast<double>(settings.seconds)},
          {"steps", steps},
          {"late", late},
          {"ahead", ahead},
          {"ends", ends}};
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  if (const Status valid = server::check_consistency(settings.consistency, settings.workers);
      !valid.ok()) {
    refuse("--kind", valid.error().message);
  }
  const bench::ParameterServers servers(
      {.workers = settings.workers,
       .catalog = {.tensors = {{.name = "w",
                                .count = settings.floats,
                                .optimizer = {.kind = optim::OptimizerKind::kSgd,
                                              .weight_decay = 0}}}},
       .consistency = settings.consistency});
  bench::SlowWorkers workers(servers, settings.workers, settings.work);
  workers.start();
  const int64_t began = std::chrono::steady_clock::now().time_since_epoch().count();
  std::this_thread::sleep_for(std::chrono::seconds(settings.seconds));
  std::cout << result_of(settings, workers, began).dump() << "\n";
}
