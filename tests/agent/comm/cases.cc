#include "tests/agent/comm/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>

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
    case comm::Collective::kAllReduce:
      return {1, 1};
    case comm::Collective::kReduce:
      return {1, root ? 1u : 0u};
    case comm::Collective::kBroadcast:
      return {root ? 1u : 0u, 1};
    case comm::Collective::kAllGather:
      return {1, n};
    case comm::Collective::kGather:
      return {1, root ? n : 0u};
    case comm::Collective::kReduceScatter:
      return {n, 1};
    case comm::Collective::kScatter:
      return {root ? n : 0u, 1};
    case comm::Collective::kAllToAll:
      return {n, n};
    case comm::Collective::kSend:  // around the ring
      return {1, 1};
    default:
      return {0, 0};
  }
}

Value given(const Case& c, int rank, size_t index) {
  return draw(c.type, c.op, {.seed = c.seed, .rank = rank, .index = index});
}

// Returns element `index` of the rank's result.
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
    case comm::Collective::kAllReduce:
    case comm::Collective::kReduce:
      return reduction(index);
    case comm::Collective::kReduceScatter:
      return reduction(own * count + index);
    case comm::Collective::kBroadcast:
      return given(c, c.root, index);
    case comm::Collective::kScatter:
      return given(c, c.root, own * count + index);
    case comm::Collective::kAllGather:
    case comm::Collective::kGather:
      return given(c, static_cast<int>(index / count), index % count);
    case comm::Collective::kAllToAll:
      return given(c, static_cast<int>(index / count), own * count + index % count);
    case comm::Collective::kSend:
      return given(c, (rank - 1 + n) % n, index);
    default:
      return {};
  }
}

constexpr size_t kGuard = 64;
constexpr std::byte kUntouched{0xa5};

// Returns the ranks of another group in which the case can run concurrently: some ranks of this
// group, and others if there are any, in another order.
std::vector<int> overlapping_ranks(const Shape& shape) {
  std::vector<int> ranks;
  for (int rank = shape.world - 1; rank >= 0; --rank) {
    const bool is_left_out = shape.ranks.empty() && rank == 0 && shape.world > 2;
    if (!is_left_out) ranks.push_back(rank);
  }
  return ranks;
}

Case concurrent_case(const Case& c) {
  Case other = c;
  other.shape.ranks = overlapping_ranks(c.shape);
  other.root = std::min(c.root, other.shape.size() - 1);
  other.seed = c.seed + 1'000'000;
  return other;
}

// One rank's part of a case in one group, from making the group to comparing the results.
class Side {
 public:
  Side(const Case& c, comm::Communicator& world) : case_(c), group_(&world) {
    if (c.shape.ranks.empty()) return;
    auto made = world.sub_group(c.shape.ranks);
    EXPECT_TRUE(made.ok()) << made.error().message;
    own_group_ = std::move(*made);
    group_ = own_group_.get();
    if (!has_algorithm(c.kind, c.algorithm, group_->hosts().host))
      case_.algorithm = comm::Algorithm::kAuto;
  }
  void start() {
    part_.emplace(case_, group_->rank());
    work_ = group_->start(part_->calls());
  }
  void expect_right() {
    const Status status = work_.wait();
    ASSERT_TRUE(status.ok()) << describe(case_) << ": " << status.error().message;
    const Status result = part_->check();
    ASSERT_TRUE(result.ok()) << result.error().message;
  }

 private:
  Case case_;
  std::unique_ptr<comm::Communicator> own_group_;
  comm::Communicator* group_;
  std::optional<Part> part_;
  comm::Work work_;
};

bool is_in(const Shape& shape, int rank) {
  return shape.ranks.empty() || std::count(shape.ranks.begin(), shape.ranks.end(), rank) > 0;
}

}  // namespace

Part::Part(const Case& c, int rank) : case_(c), rank_(rank) {
  const Blocks blocks = blocks_of(c, rank);
  is_together_ = c.in_place && c.kind != comm::Collective::kSend;
  const size_t larger = std::max(blocks.in, blocks.out);
  output_.assign(c.blocks(is_together_ ? larger : std::max<size_t>(1, blocks.out)) + kGuard,
                 kUntouched);
  input_.assign(c.blocks(blocks.in) + kGuard, kUntouched);
  const size_t elements = blocks.in * static_cast<size_t>(c.count);
  std::byte* from = input_.data();
  if (is_together_) {
    const bool own_block = blocks.in < blocks.out && blocks.in > 0;
    from = output_.data() + (own_block ? c.blocks(static_cast<size_t>(rank)) : 0);
  }
  for (size_t i = 0; i < elements; ++i) store(c.type, from, i, given(c, rank, i));
}

std::vector<comm::Call> Part::calls() {
  comm::Call call{.kind = case_.kind,
                  .buffer = {.data = output_.data(),
                             .count = case_.count,
                             .type = case_.type,
                             .input = is_together_ ? nullptr : input_.data()},
                  .op = case_.op,
                  .rank = case_.root,
                  .algorithm = case_.algorithm};
  if (case_.kind != comm::Collective::kSend) return {call};
  // Everyone sends to the next rank and receives from the one before, both issued together.
  const int size = case_.shape.size();
  call.rank = (rank_ + 1) % size;
  comm::Call receiving = call;
  receiving.kind = comm::Collective::kReceive;
  receiving.buffer.input = nullptr;
  receiving.rank = (rank_ - 1 + size) % size;
  return {call, receiving};
}

Status Part::check() const {
  const auto wrong = [this](const std::string& what) {
    return corrupt(describe(case_) + ": rank " + std::to_string(rank_) + " " + what);
  };
  const Blocks blocks = blocks_of(case_, rank_);
  const bool own_block = is_together_ && blocks.out < blocks.in && blocks.out > 0;
  const std::byte* from =
      output_.data() + (own_block ? case_.blocks(static_cast<size_t>(rank_)) : 0);
  const auto count = static_cast<size_t>(case_.count);
  for (size_t i = 0; i < blocks.out * count; ++i) {
    const Value got = load(case_.type, from, i);
    const Value wanted = expected(case_, rank_, i);
    if (got == wanted) continue;
    const auto text = [](const Value& value) {
      return std::to_string(value.real) + "/" + std::to_string(value.whole);
    };
    return wrong("at " + std::to_string(i) + ": " + text(got) + " is not " + text(wanted));
  }
  for (const auto* bytes : {&input_, &output_}) {
    if (!std::all_of(bytes->end() - kGuard, bytes->end(),
                     [](std::byte b) { return b == kUntouched; })) {
      return wrong("wrote past the end of a buffer");
    }
  }
  if (is_together_) return {};
  for (size_t i = 0; i < blocks.in * count; ++i) {
    if (load(case_.type, input_.data(), i) == given(case_, rank_, i)) continue;
    return wrong("changed its input at " + std::to_string(i));
  }
  return {};
}

// Every other rank begins with the other group.
void run_case(const Case& c, comm::Communicator& world) {
  std::vector<Side> sides;
  if (is_in(c.shape, world.rank())) sides.emplace_back(c, world);
  const Case concurrent = concurrent_case(c);
  if (c.runs_concurrent_group && is_in(concurrent.shape, world.rank()))
    sides.emplace_back(concurrent, world);
  if (world.rank() % 2 == 1) std::reverse(sides.begin(), sides.end());
  for (Side& side : sides) side.start();
  for (Side& side : sides) side.expect_right();
}

}  // namespace lockstep::test
