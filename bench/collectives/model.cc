// bench_collectives_model: how collective times grow with the number of ranks. Reads what
// measure.py --json wrote for several numbers of ranks and fits latency and bandwidth
// (common/layout/collective_cost.h). Prints measured and modelled times next to each other, and
// predictions for more ranks.
//
//   for n in 2 3 4 6 8; do
//     bench/collectives/measure.py --ranks $n --only lockstep-tcp,lockstep-shm --json $n.json; done
//   build/bin/bench_collectives_model 2.json 3.json 4.json 6.json 8.json
#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "agent/comm/collectives.h"
#include "common/base/run_main.h"
#include "common/layout/collective_cost.h"

namespace lockstep::bench {
namespace {

struct Operation {
  const char* name;  // in measure.py
  CollectiveKind kind;
  comm::Collective collective;
  bool has_blocks;  // the size counts one block per rank
};
constexpr Operation kOperations[] = {
    {"all-reduce", CollectiveKind::kAllReduce, comm::Collective::kAllReduce, false},
    {"all-gather", CollectiveKind::kAllGather, comm::Collective::kAllGather, true},
    {"reduce-scatter", CollectiveKind::kReduceScatter, comm::Collective::kReduceScatter, true},
    {"broadcast", CollectiveKind::kBroadcast, comm::Collective::kBroadcast, false},
    {"all-to-all", CollectiveKind::kAllToAll, comm::Collective::kAllToAll, true},
};

constexpr std::pair<comm::Algorithm, CollectiveAlgorithm> kWays[] = {
    {comm::Algorithm::kDirect, CollectiveAlgorithm::kDirect},
    {comm::Algorithm::kRing, CollectiveAlgorithm::kRing},
    {comm::Algorithm::kTree, CollectiveAlgorithm::kTree},
    {comm::Algorithm::kHalving, CollectiveAlgorithm::kHalving}};

struct Sample {
  std::string operation;
  int64_t size = 0;
  TimedCollective timed;
};
// Samples are fitted per library, and separately if ranks share cores, where a message also costs a
// context switch.
struct World {
  std::string library;
  int64_t shared_cores = 0;  // 0: every rank has its own
  auto operator<=>(const World&) const = default;
};
using Samples = std::map<World, std::vector<Sample>>;

// Sets what.way to the algorithm that the communicator chooses automatically. Over TCP every rank
// is its own host. Returns false if there is none, or the cost model has no such way.
bool choose_way(const Operation& operation, bool over_tcp, CollectiveCase& what) {
  std::vector<int> nodes(static_cast<size_t>(what.ranks), 0);
  if (over_tcp) std::iota(nodes.begin(), nodes.end(), 0);
  const comm::HostMap hosts = comm::make_host_map(nodes);
  const auto chosen = comm::choose_algorithm({.kind = operation.collective,
                                              .size = static_cast<int>(what.ranks),
                                              .count = static_cast<int64_t>(what.block_bytes),
                                              .type = comm::DataType::kU8,
                                              .hosts = &hosts});
  if (!chosen.ok()) return false;
  for (const auto& [algorithm, way] : kWays) {
    if (algorithm != *chosen) continue;
    what.algorithm = way;
    return true;
  }
  return false;
}

void take(const nlohmann::json& document, Samples& samples) {
  const int64_t ranks = document.at("ranks");
  const int64_t cores = document.at("cores");
  for (const Operation& operation : kOperations) {
    const auto& cells = document.at("cells");
    if (!cells.contains(operation.name)) continue;
    for (const auto& cell : cells.at(operation.name)) {
      for (const auto& [library, measured] : cell.items()) {
        // The algorithms that other libraries choose are unknown.
        if (!measured.contains("us") || library.rfind("lockstep", 0) != 0) continue;
        const int64_t bytes = measured.at("bytes");
        CollectiveCase what{
            .kind = operation.kind,
            .ranks = ranks,
            .block_bytes = static_cast<double>(operation.has_blocks ? bytes / ranks : bytes)};
        if (!choose_way(operation, library == "lockstep-tcp", what)) continue;
        samples[{library, ranks > cores ? cores : 0}].push_back(
            {operation.name, bytes, {what, measured.at("us").get<double>() / 1e6}});
      }
    }
  }
}

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 99.5e-6 ? "%.1f" : "%.0f", seconds * 1e6);
  return text;
}

std::string bytes_text(int64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

void print_fit(const World& world, const std::vector<Sample>& samples, const Network& network) {
  std::printf("\n### %s%s: latency %.1f us, %.2f GB/s\n\n", world.library.c_str(),
              world.shared_cores > 0 ? ", ranks share cores" : "", network.latency_s * 1e6,
              network.bytes_per_s / 1e9);
  std::printf(
      "| operation | size | ranks | way | measured us | modelled us | modelled / measured |\n");
  std::printf("|---|---:|---:|---|---:|---:|---:|\n");
  std::vector<double> factors;
  for (const Sample& sample : samples) {
    const CollectiveCase& what = sample.timed.what;
    const double modelled = *collective_seconds(what, network);
    factors.push_back(std::exp(std::fabs(std::log(modelled / sample.timed.seconds))));
    std::printf("| %s | %s | %lld | %s | %s | %s | %.2f |\n", sample.operation.c_str(),
                bytes_text(sample.size).c_str(), static_cast<long long>(what.ranks),
                std::string(name_of(what.algorithm)).c_str(),
                microseconds(sample.timed.seconds).c_str(), microseconds(modelled).c_str(),
                modelled / sample.timed.seconds);
  }
  std::sort(factors.begin(), factors.end());
  std::printf("\nOff by a factor of %.2f in the median, %.2f at most, of %zu.\n",
              factors[factors.size() / 2], factors.back(), factors.size());
}

// Predicts all-reduce times, with one rank per core and host.
void predict(const char* of_what, Network network) {
  network.cores = 0;
  std::printf(
      "\n### Prediction, not measured: all-reduce, one rank a host, %s "
      "(%.1f us, %.2f GB/s)\n\n",
      of_what, network.latency_s * 1e6, network.bytes_per_s / 1e9);
  std::printf("| ranks |");
  constexpr double kSizes[] = {8, 64 << 10, 1 << 20, 64 << 20};
  for (const double size : kSizes) {
    const std::string text = bytes_text(static_cast<int64_t>(size));
    std::printf(" ring %s, us | best %s, us |", text.c_str(), text.c_str());
  }
  std::printf("\n|---:|");
  for (size_t i = 0; i < 2 * std::size(kSizes); ++i) std::printf("---:|");
  std::printf("\n");
  for (int64_t ranks = 2; ranks <= 4096; ranks *= 2) {
    std::printf("| %lld |", static_cast<long long>(ranks));
    for (const double size : kSizes) {
      CollectiveCase what{.ranks = ranks, .block_bytes = size};
      std::printf(" %s |", microseconds(*collective_seconds(what, network)).c_str());
      what.algorithm = fastest_algorithm(what, network);
      std::printf(" %s %s |", microseconds(*collective_seconds(what, network)).c_str(),
                  std::string(name_of(what.algorithm)).c_str());
    }
    std::printf("\n");
  }
}

int run(const std::vector<std::string>& files) {
  Samples samples;
  for (const std::string& name : files) {
    std::ifstream file(name);
    const auto document = nlohmann::json::parse(file, nullptr, false);
    if (!document.is_object() || !document.contains("cells") || !document.contains("ranks") ||
        !document.contains("cores")) {
      std::fprintf(stderr, "bench_collectives_model: %s is not JSON written by measure.py\n",
                   name.c_str());
      return 2;
    }
    take(document, samples);
  }
  for (auto& [world, of_world] : samples) {
    std::stable_sort(of_world.begin(), of_world.end(), [](const Sample& a, const Sample& b) {
      return std::tie(a.timed.what.kind, a.size, a.timed.what.ranks) <
             std::tie(b.timed.what.kind, b.size, b.timed.what.ranks);
    });
    std::vector<TimedCollective> timed;
    for (const Sample& sample : of_world) timed.push_back(sample.timed);
    const auto network = fit_network(timed, world.shared_cores);
    if (!network.ok()) {
      std::fprintf(stderr, "bench_collectives_model: %s: %s\n", world.library.c_str(),
                   network.error().message.c_str());
      return 1;
    }
    print_fit(world, of_world, *network);
    if (world == World{"lockstep-tcp", 0}) {
      predict("links as this machine's loopback", *network);
    }
  }
  predict("an assumed network of 100 Gb/s", {.latency_s = 10e-6, .bytes_per_s = 12.5e9});
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

namespace {

int program(int argc, char** argv) {
  const std::vector<std::string> files(argv + 1, argv + argc);
  if (files.empty()) {
    std::fprintf(stderr, "usage: bench_collectives_model FILE...   # of measure.py --json\n");
    return 2;
  }
  return lockstep::bench::run(files);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("bench_collectives_model", program, argc, argv);
}
