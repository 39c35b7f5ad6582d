#include "tests/agent/comm/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "tests/agent/comm/values.h"

namespace lockstep::test {
namespace {

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
    std::array<Value, 8> values;
    for (int other = 0; other < n; ++other) {
      values.at(static_cast<size_t>(other)) = given(c, other, at);
    }
    return reduced(c.type, c.op, std::span(values).first(static_cast<size_t>(n)));
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
  const Status status =
      c.kind == Collective::kSend ? send_around(group, memory) : group.run(memory.call);
  ASSERT_TRUE(status.ok()) << describe(c) << ": " << status.error().message;
  expect_results(c, group.rank(), memory);
}

}  // namespace lockstep::test
