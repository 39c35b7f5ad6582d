#include "tests/agent/comm/covering.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>

#include "common/base/check.h"
#include "common/base/random.h"

namespace lockstep::test {
namespace {

const std::vector<Shape> kShapes = {{1, {}}, {2, {}}, {3, {}},           {4, {}},       {5, {}},
                                    {7, {}}, {8, {}}, {8, {6, 4, 2, 0}}, {7, {5, 1, 6}}};

// Block sizes in bytes: none, one element, odd ones, around each threshold, more than any buffer.
constexpr size_t kSizes[] = {0,     1,         13,        4096,        8192,       16384 + 24,
                             32768, 32768 + 8, 65536 + 8, 262144 + 40, 1048576 + 8};
constexpr int kRoots = 3;

// Algorithms of an operation, and the factors that have a meaning for it.
struct Kind {
  comm::Collective kind;
  bool reduces;
  bool has_root;
  bool has_values;  // a type, a count, and in-place or not
  std::vector<comm::Algorithm> algorithms;
};
const std::vector<Kind> kKinds = {
    {comm::Collective::kBarrier,
     false,
     false,
     false,
     {comm::Algorithm::kDirect, comm::Algorithm::kHalving}},
    {comm::Collective::kBroadcast,
     false,
     true,
     true,
     {comm::Algorithm::kTree, comm::Algorithm::kRing, comm::Algorithm::kOneRoot,
      comm::Algorithm::kByHost}},
    {comm::Collective::kAllReduce,
     true,
     false,
     true,
     {comm::Algorithm::kDirect, comm::Algorithm::kRing, comm::Algorithm::kHalving,
      comm::Algorithm::kTree, comm::Algorithm::kOneRoot, comm::Algorithm::kByHost,
      comm::Algorithm::kByHostHalving}},
    {comm::Collective::kAllGather,
     false,
     false,
     true,
     {comm::Algorithm::kDirect, comm::Algorithm::kRing, comm::Algorithm::kHalving,
      comm::Algorithm::kByHost}},
    {comm::Collective::kReduce,
     true,
     true,
     true,
     {comm::Algorithm::kTree, comm::Algorithm::kRing, comm::Algorithm::kOneRoot,
      comm::Algorithm::kByHost}},
    {comm::Collective::kReduceScatter,
     true,
     false,
     true,
     {comm::Algorithm::kDirect, comm::Algorithm::kRing, comm::Algorithm::kHalving,
      comm::Algorithm::kByHost}},
    {comm::Collective::kScatter, false, true, true, {comm::Algorithm::kOneRoot}},
    {comm::Collective::kGather, false, true, true, {comm::Algorithm::kOneRoot}},
    {comm::Collective::kAllToAll, false, false, true, {comm::Algorithm::kDirect}},
    {comm::Collective::kSend, false, false, true, {comm::Algorithm::kDirect}}};

enum Factor : size_t {
  kKind,
  kOp,
  kType,
  kShape,
  kSize,
  kAlgorithm,
  kTransport,
  kPlace,
  kRoot,
  kConcurrentGroup,
  kFrames,
  kLoans,
  kFactors
};
constexpr const char* kFactorNames[] = {"operation", "reduction",        "type",         "shape",
                                        "bytes",     "algorithm",        "transport",    "in place",
                                        "root",      "concurrent group", "small frames", "loans"};
constexpr int kNone = -1;  // has no meaning for the operation
using Row = std::array<int, kFactors>;
using Pair = std::array<int, 4>;  // a factor and its value, another factor and its value
using Choices = std::array<std::vector<int>, kFactors>;  // any combination makes a case

const Kind& find_kind(comm::Collective kind) {
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const Kind& each) { return each.kind == kind; });
  CHECK(found != kKinds.end());
  return *found;
}

std::vector<int> up_to(int count) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(i);
  return all;
}

std::vector<int> sizes_of(const TestSetup& setup) {
  const auto* end = std::upper_bound(std::begin(kSizes), std::end(kSizes), setup.block_bytes_max);
  return up_to(static_cast<int>(end - std::begin(kSizes)));
}

Choices choices_of(const TestSetup& setup, size_t kind, size_t shape, int algorithm,
                   int transport) {
  const Kind& what = kKinds[kind];
  const std::vector<int> none{kNone};
  const bool placed = what.has_values && what.kind != comm::Collective::kSend;
  return {std::vector<int>{static_cast<int>(kind)},
          what.reduces ? up_to(comm::kReduceOps) : none,
          what.has_values ? up_to(comm::kDataTypes) : none,
          std::vector<int>{static_cast<int>(shape)},
          what.has_values ? sizes_of(setup) : none,
          std::vector<int>{algorithm},
          std::vector<int>{transport},
          placed ? up_to(2) : none,
          what.has_root ? up_to(std::min(kRoots, kShapes[shape].size())) : none,
          up_to(setup.has_concurrent_groups && kShapes[shape].world > 1 ? 2 : 1),
          up_to(setup.has_limits ? 2 : 1),
          up_to(setup.has_limits ? 2 : 1)};
}

// Goes through the four factors that decide whether a case exists. For each combination of their
// values, returns all values of the other factors.
std::vector<Choices> all_choices(const TestSetup& setup) {
  std::vector<Choices> all;
  for (size_t kind = 0; kind < kKinds.size(); ++kind) {
    for (size_t shape = 0; shape < kShapes.size(); ++shape) {
      if (kKinds[kind].kind == comm::Collective::kSend && kShapes[shape].size() == 1) continue;
      for (size_t i = 0; i < setup.transports.size(); ++i) {
        const int hosts =
            setup.hosts > 0 ? setup.hosts : hosts_of(setup.transports[i], kShapes[shape].world);
        const auto nodes = nodes_of(kShapes[shape], hosts);
        for (int algorithm = 0; algorithm < comm::kAlgorithms; ++algorithm) {
          const auto way = static_cast<comm::Algorithm>(algorithm);
          if (way != comm::Algorithm::kAuto && !setup.has_algorithms) continue;
          if (!has_algorithm(kKinds[kind].kind, way, nodes)) continue;
          all.push_back(choices_of(setup, kind, shape, algorithm, static_cast<int>(i)));
        }
      }
    }
  }
  return all;
}

template <class Body>
void on_factor_pairs(const Body& body) {
  for (size_t a = 0; a < kFactors; ++a) {
    for (size_t b = a + 1; b < kFactors; ++b) body(a, b);
  }
}

std::vector<Pair> pairs_of(const Row& row) {
  std::vector<Pair> pairs;
  on_factor_pairs([&](size_t a, size_t b) {
    if (row[a] == kNone || row[b] == kNone) return;
    pairs.push_back({static_cast<int>(a), row[a], static_cast<int>(b), row[b]});
  });
  return pairs;
}

std::set<Pair> all_pairs(const std::vector<Choices>& all) {
  std::set<Pair> pairs;
  for (const Choices& choices : all) {
    on_factor_pairs([&](size_t a, size_t b) {
      for (const int i : choices[a]) {
        for (const int j : choices[b]) {
          if (i == kNone || j == kNone) continue;
          pairs.insert({static_cast<int>(a), i, static_cast<int>(b), j});
        }
      }
    });
  }
  return pairs;
}

bool holds(const Choices& choices, const Pair& pair) {
  const auto has = [&](int factor, int value) {
    const std::vector<int>& values = choices[static_cast<size_t>(factor)];
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  return has(pair[0], pair[1]) && has(pair[2], pair[3]);
}

// Returns the cost of a row: this many elements are drawn and compared.
size_t elements_of(const Row& row) {
  if (row[kSize] == kNone) return 0;
  const auto n = static_cast<size_t>(kShapes[static_cast<size_t>(row[kShape])].size());
  return kSizes[row[kSize]] / comm::data_type_bytes(static_cast<comm::DataType>(row[kType])) * n *
         n;
}

Row draw_row(const Choices& choices, const Pair& wanted, Random& random) {
  Row row;
  for (size_t factor = 0; factor < kFactors; ++factor) {
    row[factor] = choices[factor][random.below(choices[factor].size())];
  }
  row[static_cast<size_t>(wanted[0])] = wanted[1];
  row[static_cast<size_t>(wanted[2])] = wanted[3];
  return row;
}

// Builds rows one by one. Each time draws random rows around a missing pair, and takes the one that
// covers the most missing pairs; of equal ones, the cheapest.
std::vector<Row> covering_rows(const TestSetup& setup, uint64_t seed) {
  constexpr int kCandidates = 60;
  Random random(seed);
  const std::vector<Choices> all = all_choices(setup);
  std::set<Pair> missing = all_pairs(all);
  std::vector<Row> rows;
  while (!missing.empty()) {
    const Pair wanted = *missing.begin();
    std::vector<const Choices*> around;
    for (const Choices& choices : all) {
      if (holds(choices, wanted)) around.push_back(&choices);
    }
    Row best{};
    std::pair<size_t, size_t> most{0, 0};
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
      const Row row = draw_row(*around[random.below(around.size())], wanted, random);
      size_t brings = 0;
      for (const Pair& pair : pairs_of(row)) brings += missing.count(pair);
      const std::pair<size_t, size_t> worth{brings, ~elements_of(row)};
      if (worth <= most) continue;
      most = worth;
      best = row;
    }
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    rows.push_back(best);
  }
  return rows;
}

Case case_of(const TestSetup& setup, const Row& row, uint64_t seed) {
  Case made{.kind = kKinds[static_cast<size_t>(row[kKind])].kind,
            .shape = kShapes[static_cast<size_t>(row[kShape])],
            .algorithm = static_cast<comm::Algorithm>(row[kAlgorithm]),
            .transport = setup.transports[static_cast<size_t>(row[kTransport])],
            .in_place = row[kPlace] == 1,
            .root = std::max(0, row[kRoot]),
            .runs_concurrent_group = row[kConcurrentGroup] == 1,
            .limits = {.has_small_frames = row[kFrames] == 1, .lends = row[kLoans] == 1},
            .seed = seed};
  if (row[kOp] != kNone) made.op = static_cast<comm::ReduceOp>(row[kOp]);
  if (row[kType] == kNone) return made;
  made.type = static_cast<comm::DataType>(row[kType]);
  const size_t element = comm::data_type_bytes(made.type);
  made.count = static_cast<int64_t>((kSizes[row[kSize]] + element - 1) / element);
  return made;
}

template <class Range, class Test>
int index_where(const Range& range, const Test& test) {
  const auto found = std::find_if(std::begin(range), std::end(range), test);
  CHECK(found != std::end(range));
  return static_cast<int>(found - std::begin(range));
}

// The inverse: finds the row from the case alone.
Row stream_of(const TestSetup& setup, const Case& c) {
  const Kind& what = find_kind(c.kind);
  const size_t element = comm::data_type_bytes(c.type);
  const auto or_none = [](bool means, int value) { return means ? value : kNone; };
  const int size = index_where(kSizes, [&](size_t bytes) {
    return (bytes + element - 1) / element == static_cast<size_t>(c.count);
  });
  return {index_where(kKinds, [&](const Kind& each) { return each.kind == c.kind; }),
          or_none(what.reduces, static_cast<int>(c.op)),
          or_none(what.has_values, static_cast<int>(c.type)),
          index_where(kShapes,
                      [&](const Shape& each) {
                        return each.world == c.shape.world && each.ranks == c.shape.ranks;
                      }),
          or_none(what.has_values, size),
          static_cast<int>(c.algorithm),
          index_where(setup.transports, [&](Transport each) { return each == c.transport; }),
          or_none(what.has_values && c.kind != comm::Collective::kSend, c.in_place ? 1 : 0),
          or_none(what.has_root, c.root),
          c.runs_concurrent_group ? 1 : 0,
          c.limits.has_small_frames ? 1 : 0,
          c.limits.lends ? 1 : 0};
}

std::string text_of(const Shape& shape) {
  std::string text = std::to_string(shape.size()) + " of " + std::to_string(shape.world);
  for (const int rank : shape.ranks)
    text += (rank == shape.ranks[0] ? ": " : ",") + std::to_string(rank);
  return text;
}

std::string value_text(const TestSetup& setup, size_t factor, int value) {
  const auto index = static_cast<size_t>(value);
  switch (factor) {
    case kKind:
      return name_of(kKinds[index].kind);
    case kOp:
      return name_of(static_cast<comm::ReduceOp>(value));
    case kType:
      return name_of(static_cast<comm::DataType>(value));
    case kShape:
      return text_of(kShapes[index]);
    case kSize:
      return std::to_string(kSizes[index]);
    case kAlgorithm:
      return name_of(static_cast<comm::Algorithm>(value));
    case kTransport:
      return name_of(setup.transports[index]);
    default:
      return std::to_string(value);
  }
}

std::string text_of(const TestSetup& setup, const Pair& pair) {
  const auto one = [&](int factor, int value) {
    const auto index = static_cast<size_t>(factor);
    return std::string(kFactorNames[index]) + " " + value_text(setup, index, value);
  };
  return one(pair[0], pair[1]) + ", " + one(pair[2], pair[3]);
}

}  // namespace

std::string describe(const Case& c) {
  return std::string(name_of(c.kind)) + " " + name_of(c.op) + " " + name_of(c.type) + " x " +
         std::to_string(c.count) + ", " + name_of(c.algorithm) + ", " + name_of(c.transport) +
         ", " + text_of(c.shape) + ", root " + std::to_string(c.root) +
         (c.in_place ? ", in place" : "") + (c.runs_concurrent_group ? ", concurrent group" : "") +
         (c.limits.has_small_frames ? ", small frames" : "") + (c.limits.lends ? ", loans" : "") +
         ", seed " + std::to_string(c.seed);
}

bool has_algorithm(comm::Collective kind, comm::Algorithm algorithm,
                   std::span<const int> node_of_rank) {
  if (algorithm == comm::Algorithm::kAuto) return true;
  const std::vector<comm::Algorithm>& has = find_kind(kind).algorithms;
  if (std::find(has.begin(), has.end(), algorithm) == has.end()) return false;
  if (algorithm == comm::Algorithm::kHalving &&
      (kind == comm::Collective::kAllGather || kind == comm::Collective::kReduceScatter)) {
    return std::has_single_bit(node_of_rank.size());
  }
  if (algorithm == comm::Algorithm::kByHost || algorithm == comm::Algorithm::kByHostHalving) {
    // Several hosts, but fewer hosts than ranks.
    const size_t hosts = std::set<int>(node_of_rank.begin(), node_of_rank.end()).size();
    return hosts > 1 && hosts < node_of_rank.size();
  }
  return true;
}

std::vector<int> nodes_of(const Shape& shape, int hosts) {
  const int per_host = (shape.world + hosts - 1) / hosts;
  std::vector<int> nodes;
  for (const int rank : shape.ranks.empty() ? up_to(shape.world) : shape.ranks) {
    nodes.push_back(rank / per_host);
  }
  return nodes;
}

std::span<const Shape> shapes() {
  return kShapes;
}

std::vector<Case> covering_array(const TestSetup& setup, uint64_t seed) {
  std::vector<Case> cases;
  for (const Row& row : covering_rows(setup, seed)) {
    cases.push_back(case_of(setup, row, seed + cases.size() + 1));
  }
  return cases;
}

Product::Product(const TestSetup& setup) : setup_(setup) {
  for (const Choices& choices : all_choices(setup)) {
    uint64_t cases = 1;
    for (const auto& values : choices) cases *= values.size();
    choices_.emplace_back(choices.begin(), choices.end());
    ends_.push_back(size() + cases);
  }
}

Case Product::at(uint64_t index, uint64_t seed) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  CHECK(end != ends_.end());
  const auto which = static_cast<size_t>(end - ends_.begin());
  uint64_t rest = index - (which == 0 ? 0 : ends_[which - 1]);
  Row row;
  for (size_t factor = 0; factor < kFactors; ++factor) {
    const std::vector<int>& values = choices_[which][factor];
    row[factor] = values[rest % values.size()];
    rest /= values.size();
  }
  return case_of(setup_, row, seed);
}

std::vector<std::string> missing_pairs(const TestSetup& setup, std::span<const Case> cases) {
  std::set<Pair> missing = all_pairs(all_choices(setup));
  for (const Case& c : cases) {
    for (const Pair& pair : pairs_of(stream_of(setup, c))) missing.erase(pair);
  }
  std::vector<std::string> words;
  for (const Pair& pair : missing) words.push_back(text_of(setup, pair));
  return words;
}

}  // namespace lockstep::test
