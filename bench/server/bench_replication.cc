// Runs of workers and replicated servers (tests/agent/server/chaos.h), of which a part is killed,
// stopped and cut off, with a seed for each run:
//   bench_replication [--runs N] [--first SEED] [--steps N] [--out FILE]
// With a file, each run is a line of it; runs that it has are not made again. The end is a summary
// of all lines. Exits with 1 if a run broke a promise.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/agent/server/chaos.h"

namespace {

using namespace lockstep;
using server::ConsistencyKind;

struct Settings {
  uint64_t runs = 200;
  uint64_t first = 1;
  uint64_t steps = 40;
  std::string out;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--out") {
      settings.out = argv[i + 1];
      continue;
    }
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--runs") {
      settings.runs = value;
    } else if (name == "--first") {
      settings.first = value;
    } else if (name == "--steps") {
      settings.steps = value;
    } else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      std::exit(2);
    }
  }
  return settings;
}

struct Kind {
  const char* name;
  server::Consistency consistency;
};
const Kind kKinds[] = {
    {"staleness-0", {.kind = ConsistencyKind::kBoundedStaleness, .staleness = 0}},
    {"staleness-1", {.kind = ConsistencyKind::kBoundedStaleness, .staleness = 1}},
    {"staleness-3", {.kind = ConsistencyKind::kBoundedStaleness, .staleness = 3}},
    {"staleness-10", {.kind = ConsistencyKind::kBoundedStaleness, .staleness = 10}},
    {"asynchronous", {.kind = ConsistencyKind::kAsynchronous}},
    {"synchronous", {}},
};

// One line: numbers, then pauses in ms with commas or "-", then what was done and what is wrong.
std::string run(uint64_t seed, uint64_t steps) {
  const Kind& kind = kKinds[seed % std::size(kKinds)];
  const test::ChaosSetup setup{.seed = seed,
                               .consistency = kind.consistency,
                               .copies = seed % 5 == 0 ? 2u : 1u,
                               .steps = steps,
                               .cuts_connections = seed % 4 == 1,
                               .calls_max = seed % 3 == 0 ? 2u : 1024u};
  const test::ChaosReport report = test::run_chaos(setup);
  std::ostringstream line;
  line << seed << '\t' << kind.name << '\t' << setup.copies << '\t' << report.views << '\t'
       << report.acknowledged_pushes << '\t' << report.pulls << '\t' << report.updates << '\t'
       << report.most_stale << '\t' << report.cuts << '\t' << report.problems.size() << '\t';
  for (const double pause : report.pauses_ms) line << pause << ',';
  line << "-\t" << report.faults << '\t';
  for (const std::string& problem : report.problems) line << problem << "; ";
  return line.str();
}

std::map<uint64_t, std::string> lines_of(const std::string& path) {
  std::map<uint64_t, std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines[std::strtoull(line.c_str(), nullptr, 10)] = line;
  }
  return lines;
}

// Returns the runs that broke a promise.
uint64_t summarize(const std::map<uint64_t, std::string>& lines) {
  uint64_t pushes = 0;
  uint64_t pulls = 0;
  uint64_t views = 0;
  uint64_t cuts = 0;
  uint64_t bad = 0;
  std::map<std::string, uint64_t> stale;
  std::map<std::string, uint64_t> faults;
  std::vector<double> pauses;
  for (const auto& [seed, line] : lines) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '\t');) cells.push_back(cell);
    if (cells.size() < 11) continue;
    cells.resize(13);
    views += std::stoull(cells[3]);
    pushes += std::stoull(cells[4]);
    pulls += std::stoull(cells[5]);
    stale[cells[1]] = std::max<uint64_t>(stale[cells[1]], std::stoull(cells[7]));
    cuts += std::stoull(cells[8]);
    if (std::stoull(cells[9]) > 0) {
      ++bad;
      std::printf("run %s: %s\n", cells[0].c_str(), cells[12].c_str());
    }
    std::istringstream numbers(cells[10]);
    for (std::string pause; std::getline(numbers, pause, ',') && pause != "-";) {
      pauses.push_back(std::stod(pause));
    }
    std::istringstream words(cells[11]);
    for (std::string word; words >> word;) {
      if (std::strspn(word.c_str(), "0123456789") != word.size()) ++faults[word];
    }
  }
  std::printf(
      "%zu runs, %llu broke a promise; %llu pushes acknowledged, %llu pulls, %llu views, "
      "%llu connections cut\n",
      lines.size(), static_cast<unsigned long long>(bad), static_cast<unsigned long long>(pushes),
      static_cast<unsigned long long>(pulls), static_cast<unsigned long long>(views),
      static_cast<unsigned long long>(cuts));
  for (const auto& [name, most] : stale) {
    std::printf("%s: at most %llu clocks missed\n", name.c_str(),
                static_cast<unsigned long long>(most));
  }
  for (const auto& [name, count] : faults) {
    std::printf("%s: %llu\n", name.c_str(), static_cast<unsigned long long>(count));
  }
  if (!pauses.empty()) {
    std::ranges::sort(pauses);
    std::printf(
        "from a primary's kill to the first push: median %.1f ms, p90 %.1f ms, most %.1f ms"
        " of %zu\n",
        pauses[pauses.size() / 2], pauses[pauses.size() * 9 / 10], pauses.back(), pauses.size());
  }
  return bad;
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  std::map<uint64_t, std::string> lines =
      settings.out.empty() ? std::map<uint64_t, std::string>() : lines_of(settings.out);
  for (uint64_t seed = settings.first; seed < settings.first + settings.runs; ++seed) {
    if (lines.contains(seed)) continue;
    lines[seed] = run(seed, settings.steps);
    std::printf("%s\n", lines[seed].c_str());
    std::fflush(stdout);
    if (settings.out.empty()) continue;
    std::ofstream(settings.out, std::ios::app) << lines[seed] << '\n';
  }
  return summarize(lines) == 0 ? 0 : 1;
}
