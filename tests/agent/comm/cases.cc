#include "tests/agent/comm/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string>

#include "agent/comm/collectives.h"
#include "common/base/random.h"
#include "tests/agent/comm/values.h"

namespace lockstep::test {
namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{1, {}}, {2, {}},           {3, {}},
                                         {4, {}}, {5, {}},           {7, {}},
                                         {8, {}}, {8, {6, 4, 2, 0}}, {7, {5, 1, 6}}};
  return all;
}

// Bytes of a block: nothing, one element, odd ones, around each threshold, more than every buffer.
constexpr size_t kSizes[] = {0,     1,         13,        4096,        8192,       16384 + 24,
                             32768, 32768 + 8, 65536 + 8, 262144 + 40, 1048576 + 8};
constexpr Collective kKinds[] = {Collective::kBarrier,   Collective::kBroadcast,
                                 Collective::kAllReduce, Collective::kAllGather,
                                 Collective::kReduce,    Collective::kReduceScatter,
                                 Collective::kScatter,   Collective::kGather,
                                 Collective::kAllToAll,  Collective::kSend};
constexpr Transport kTransports[] = {Transport::kThreads, Transport::kShared, Transport::kTcp,
                                     Transport::kMixed};

enum Factor { kKind, kOp, kType, kShape, kSize, kAlgorithm, kTransport, kPlace, kRoot, kFactors };
using Row = std::array<int, kFactors>;

std::array<int, kFactors> levels() {
  return {static_cast<int>(std::size(kKinds)),
          kReduceOps,
          kDataTypes,
          static_cast<int>(shapes().size()),
          static_cast<int>(std::size(kSizes)),
          kAlgorithms,
          static_cast<int>(std::size(kTransports)),
          2,
          3};
}

using Pair = std::array<int, 4>;  // factor, its value, another factor, its value

std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (int a = 0; a < kFactors; ++a) {
    for (int b = a + 1; b < kFactors; ++b) {
      pairs.insert({a, row[static_cast<size_t>(a)], b, row[static_cast<size_t>(b)]});
    }
  }
  return pairs;
}

std::set<Pair> all_pairs() {
  const auto count = levels();
  std::set<Pair> pairs;
  for (int a = 0; a < kFactors; ++a) {
    for (int b = a + 1; b < kFactors; ++b) {
      for (int i = 0; i < count[static_cast<size_t>(a)]; ++i) {
        for (int j = 0; j < count[static_cast<size_t>(b)]; ++j) pairs.insert({a, i, b, j});
      }
    }
  }
  return pairs;
}

// Rows one after the other: of some random ones around a pair that is missing, the one that brings
// the most.
std::vector<Row> covering_rows(uint64_t seed) {
  constexpr int kCandidates = 20;
  Random random(seed);
  const auto count = levels();
  std::set<Pair> missing = all_pairs();
  std::vector<Row> rows;
  while (!missing.empty()) {
    Row best{};
    size_t most = 0;
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
      Row row;
      for (size_t factor = 0; factor < kFactors; ++factor) {
        row[factor] = static_cast<int>(random.below(static_cast<uint64_t>(count[factor])));
      }
      const Pair wanted = *missing.begin();
      row[static_cast<size_t>(wanted[0])] = wanted[1];
      row[static_cast<size_t>(wanted[2])] = wanted[3];
      size_t brings = 0;
      for (const Pair& pair : pairs_of(row)) brings += missing.count(pair);
      if (brings > most) {
        most = brings;
        best = row;
      }
    }
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    rows.push_back(best);
  }
  return rows;
}

Case case_of(const Row& row, uint64_t seed) {
  Case made{.kind = kKinds[row[kKind]],
            .op = static_cast<ReduceOp>(row[kOp]),
            .type = static_cast<DataType>(row[kType]),
            .shape = shapes()[static_cast<size_t>(row[kShape])],
            .algorithm = static_cast<Algorithm>(row[kAlgorithm]),
            .transport = kTransports[row[kTransport]],
            .in_place = row[kPlace] == 1,
            .seed = seed};
  const size_t element = data_type_bytes(made.type);
  const size_t bytes = kSizes[row[kSize]];
  made.count = static_cast<int64_t>((bytes + element - 1) / element);
  made.root = std::min(row[kRoot], made.shape.size() - 1);
  return made;
}

std::string describe(const Case& c) {
  std::string text = std::string(name_of(c.kind)) + " " + name_of(c.op) + " " + name_of(c.type) +
                     " x " + std::to_string(c.count) + ", " + name_of(c.algorithm) + ", " +
                     name_of(c.transport) + ", " + std::to_string(c.shape.size()) + " of " +
                     std::to_string(c.shape.world) + ", root " + std::to_string(c.root) +
                     (c.in_place ? ", in place" : "") + ", seed " + std::to_string(c.seed);
  return text;
}

// How many blocks a rank takes and gives.
struct Blocks {
  size_t in = 0;
  size_t out = 0;
};
Blocks blocks_of(const Case& c, int rank) {
  const auto n = static_cast<size_t>(c.shape.size());
  const bool root = rank == c.root;
  switch (c.kind) {
    case Collective::kAllReduce:
      return {1, 1};
    case Collective::kReduce:
      return {1, root ? 1u : 0u};
    case Collective::kBroadcast:
      return {root ? 1u : 0u, 1};
    case Collective::kAllGather:
      return {1, n};
    case Collective::kGather:
      return {1, root ? n : 0u};
    case Collective::kReduceScatter:
      return {n, 1};
    case Collective::kScatter:
      return {root ? n : 0u, 1};
    case Collective::kAllToAll:
      return {n, n};
    case Collective::kSend:  // around the ring
      return {1, 1};
    default:
      return {0, 0};
  }
}

Value given(const Case& c, int rank, size_t index) {
  return draw(c.type, c.op, {.seed = c.seed, .rank = rank, .index = index});
}

// Element `index` of what the rank ends with.
Value expected(const Case& c, int rank, size_t index) {
  const int n = c.shape.size();
  const auto count = static_cast<size_t>(c.count);
  const auto reduction = [&](size_t at) {
    std::vector<Value> values;
    for (int other = 0; other < n; ++other) values.push_back(given(c, other, at));
    return reduced(c.type, c.op, values);
  };
  const auto own = static_cast<size_t>(rank);
  switch (c.kind) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduction(index);
    case Collective::kReduceScatter:
      return reduction(own * count + index);
    case Collective::kBroadcast:
      return given(c, c.root, index);
    case Collective::kScatter:
      return given(c, c.root, own * count + index);
    case Collective::kAllGather:
    case Collective::kGather:
      return given(c, static_cast<int>(index / count), index % count);
    case Collective::kAllToAll:
      return given(c, static_cast<int>(index / count), own * count + index % count);
    case Collective::kSend:
      return given(c, (rank - 1 + n) % n, index);
    default:
      return {};
  }
}

constexpr size_t kGuard = 64;
constexpr std::byte kUntouched{0xa5};

// The memory of one rank: input and output, or both in one, and a guard behind each.
struct Memory {
  std::vector<std::byte> input;
  std::vector<std::byte> output;
  Call call;

  Memory(const Case& c, int rank) {
    const Blocks blocks = blocks_of(c, rank);
    const bool together = c.in_place && c.kind != Collective::kSend;
    const size_t larger = std::max(blocks.in, blocks.out);
    output.assign(c.blocks(together ? larger : std::max<size_t>(1, blocks.out)) + kGuard,
                  kUntouched);
    input.assign(c.blocks(blocks.in) + kGuard, kUntouched);
    const size_t elements = blocks.in * static_cast<size_t>(c.count);
    std::byte* from = input.data();
    if (together) {
      const bool own_block = blocks.in < blocks.out && blocks.in > 0;
      from = output.data() + (own_block ? c.blocks(static_cast<size_t>(rank)) : 0);
    }
    for (size_t i = 0; i < elements; ++i) store(c.type, from, i, given(c, rank, i));
    call = {.kind = c.kind,
            .buffer = {.data = output.data(),
                       .count = c.count,
                       .type = c.type,
                       .input = together ? nullptr : input.data()},
            .op = c.op,
            .rank = c.root,
            .algorithm = c.algorithm};
  }
};

void expect_results(const Case& c, int rank, const Memory& memory) {
  const Blocks blocks = blocks_of(c, rank);
  const bool together = c.in_place && c.kind != Collective::kSend;
  const bool own_block = together && blocks.out < blocks.in && blocks.out > 0;
  const std::byte* from =
      memory.output.data() + (own_block ? c.blocks(static_cast<size_t>(rank)) : 0);
  const size_t elements = blocks.out * static_cast<size_t>(c.count);
  for (size_t i = 0; i < elements; ++i) {
    const Value got = load(c.type, from, i);
    const Value wanted = expected(c, rank, i);
    ASSERT_EQ(got, wanted) << describe(c) << ": rank " << rank << " at " << i << ": " << got.real
                           << "/" << got.whole << " is not " << wanted.real << "/" << wanted.whole;
  }
  for (const auto* bytes : {&memory.input, &memory.output}) {
    ASSERT_TRUE(std::all_of(bytes->end() - kGuard, bytes->end(),
                            [](std::byte b) { return b == kUntouched; }))
        << describe(c) << ": rank " << rank << " wrote behind a buffer";
  }
  if (together) return;
  for (size_t i = 0; i < blocks.in * static_cast<size_t>(c.count); ++i) {
    ASSERT_EQ(load(c.type, memory.input.data(), i), given(c, rank, i))
        << describe(c) << ": rank " << rank << " changed its input";
  }
}

// Everyone sends to the next rank and receives from the one before, both issued together.
Status send_around(Communicator& group, const Memory& memory) {
  Call sending = memory.call;
  sending.rank = (group.rank() + 1) % group.size();
  Call receiving = memory.call;
  receiving.kind = Collective::kReceive;
  receiving.buffer.input = nullptr;
  receiving.rank = (group.rank() - 1 + group.size()) % group.size();
  const std::array<Call, 2> both = {sending, receiving};
  return group.run(both);
}

}  // namespace

std::vector<Case> covering_array(uint64_t seed) {
  std::vector<Case> cases;
  for (const Row& row : covering_rows(seed)) cases.push_back(case_of(row, seed + cases.size() + 1));
  return cases;
}

void run_case(const Case& c, Communicator& world) {
  std::unique_ptr<Communicator> sub_group;
  if (!c.shape.ranks.empty()) {
    if (std::count(c.shape.ranks.begin(), c.shape.ranks.end(), world.rank()) == 0) return;
    auto made = world.sub_group(c.shape.ranks);
    ASSERT_TRUE(made.ok()) << made.error().message;
    sub_group = std::move(*made);
  }
  Communicator& group = sub_group ? *sub_group : world;
  Memory memory(c, group.rank());
  const bool sends = c.kind == Collective::kSend;
  const bool possible =
      choose_algorithm(
          {.kind = c.kind, .algorithm = c.algorithm, .size = group.size(), .hosts = &group.hosts()})
          .ok() &&
      !(sends && group.size() == 1);
  const Status status = sends ? send_around(group, memory) : group.run(memory.call);
  if (!possible) {
    ASSERT_FALSE(status.ok()) << describe(c);
    ASSERT_EQ(status.error().code, Code::kInvalid) << describe(c);
    return;
  }
  ASSERT_TRUE(status.ok()) << describe(c) << ": " << status.error().message;
  expect_results(c, group.rank(), memory);
}

}  // namespace lockstep::test
