#include <algorithm>

#include "agent/comm/algorithms.h"

namespace lockstep::comm {
namespace {

using Kind = Move::Kind;
constexpr int kNone = Move::kNone;

bool averages(const Task& task) {
  return task.op == ReduceOp::kAvg;
}

// Sums up the tree. At the root, returns the last move, which makes the result.
int tree_up(const Task& task, MovePlan& plan, Area partial) {
  const TreePlace tree = tree_place(task);
  const size_t bytes = block_bytes(task);
  Place sum = input(0);
  int last = kNone;
  for (const int child : tree.children) {
    if (child < 0) continue;
    const bool final = child == tree.children[1] || tree.children[1] < 0;
    last = plan.add({.kind = Kind::kReduce,
                     .peer = child,
                     .from = sum,
                     .into = {partial, 0},
                     .bytes = bytes,
                     .after = last,
                     .averages = averages(task) && tree.parent < 0 && final});
    sum = {partial, 0};
  }
  if (tree.parent >= 0) {
    plan.add(
        {.kind = Kind::kSend, .peer = tree.parent, .from = sum, .bytes = bytes, .after = last});
  }
  return last;
}

// Sums at the root; returns the last move there.
int gather_sums(const Task& task, MovePlan& plan) {
  const size_t bytes = block_bytes(task);
  if (task.rank != task.root) {
    plan.add({.kind = Kind::kSend, .peer = task.root, .from = input(0), .bytes = bytes});
    return kNone;
  }
  int last = kNone;
  for (int place = 1; place < task.size; ++place) {
    last = plan.add({.kind = Kind::kReduce,
                     .peer = rank_at_place(task, place),
                     .from = place == 1 ? input(0) : output(0),
                     .into = output(0),
                     .bytes = bytes,
                     .after = last,
                     .averages = averages(task) && place == task.size - 1});
  }
  return last;
}

}  // namespace

void direct_all_reduce(const Task& task, MovePlan& plan) {
  const size_t bytes = block_bytes(task);
  int sent = kNone;
  for (int i = 1; i < task.size; ++i) {
    // Everyone begins with its neighbour, so that not all send to the same rank first.
    sent = plan.add(
        {.kind = Kind::kSend, .peer = rank_behind(task, -i), .from = input(0), .bytes = bytes});
  }
  if (task.size == 2) {
    plan.add({.kind = Kind::kReduce,
              .peer = 1 - task.rank,
              .from = input(0),
              .into = output(0),
              .bytes = bytes,
              .overwrites_after = task.in_place ? sent : kNone,
              .averages = averages(task),
              .peer_first = task.rank == 1});
    return;
  }
  // ((x_0 + x_1) + x_2) + ..., in scratch up to the last step, which waits until all is sent.
  plan.need_scratch(bytes);
  int last = kNone;
  for (int rank = 0; rank < task.size; ++rank) {
    const bool final = rank == task.size - 1;
    if (rank == 0 && task.rank == 0) continue;
    const bool first = rank == (task.rank == 0 ? 1 : 0);
    Move move{.kind = rank == task.rank         ? Kind::kCombine
                      : first && task.rank != 0 ? Kind::kReceive
                                                : Kind::kReduce,
              .peer = rank,
              .from = first ? input(0) : scratch(0),
              .with = input(0),
              .into = final ? output(0) : scratch(0),
              .bytes = bytes,
              .after = last,
              .is_barrier = final,
              .averages = averages(task) && final};
    last = plan.add(move);
  }
}

namespace {

// Part of a block, in elements.
struct Chunk {
  int64_t begin = 0;
  int64_t count = 0;
};

// Returns how many chunks the ring processes one after another. In memory, segments are
// kRingSegmentBytes long, so that a rank sends on what it has just added from its caches.
int ring_chunks(const Task& task) {
  const bool in_memory = task.hosts == nullptr || task.hosts->hosts() == 1;
  if (!in_memory) return 1;
  const size_t chunk = kRingSegmentBytes * static_cast<size_t>(task.size);
  return static_cast<int>(std::clamp<size_t>(block_bytes(task) / chunk, 1, kRingChunksMax));
}

// Both phases form one sequence of 2(n-1) steps: each step sends what the step before received.
void ring_all_reduce_chunk(const Task& task, const Chunk& chunk, MovePlan& plan) {
  const int n = task.size;
  const auto segment_of = [&](int index) {
    const Segment found = ring_segment(chunk.count, n, index);
    return Span{.at = static_cast<size_t>(chunk.begin + found.begin) * element_bytes(task),
                .bytes = static_cast<size_t>(found.end - found.begin) * element_bytes(task)};
  };
  int came = kNone;
  for (int step = 0; step < 2 * (n - 1); ++step) {
    const Span going = segment_of(rank_behind(task, step));
    const Span coming = segment_of(rank_behind(task, step + 1));
    plan.add({.kind = Kind::kSend,
              .peer = rank_behind(task, -1),
              .from = {step == 0 ? Area::kInput : Area::kOutput, going.at},
              .bytes = going.bytes,
              .after = came});
    came = plan.add({.kind = step < n - 1 ? Kind::kReduce : Kind::kReceive,
                     .peer = rank_behind(task, 1),
                     .from = input(coming.at),
                     .into = output(coming.at),
                     .bytes = coming.bytes,
                     .averages = averages(task) && step == n - 2});
  }
}

}  // namespace

void ring_all_reduce(const Task& task, MovePlan& plan) {
  const int chunks = ring_chunks(task);
  for (int index = 0; index < chunks; ++index) {
    const Segment part = ring_segment(task.count, chunks, index);
    ring_all_reduce_chunk(task, {.begin = part.begin, .count = part.end - part.begin}, plan);
  }
}

void tree_all_reduce(const Task& task, MovePlan& plan) {
  const int summed = tree_up(task, plan, Area::kOutput);
  tree_down(task, plan, output(0), summed);
}

void one_root_all_reduce(const Task& task, MovePlan& plan) {
  const size_t bytes = block_bytes(task);
  const int summed = gather_sums(task, plan);
  if (task.rank != task.root) {
    plan.add({.kind = Kind::kReceive, .peer = task.root, .into = output(0), .bytes = bytes});
    return;
  }
  for (int place = 1; place < task.size; ++place) {
    plan.add({.kind = Kind::kSend,
              .peer = rank_at_place(task, place),
              .from = output(0),
              .bytes = bytes,
              .after = summed});
  }
}

void tree_reduce(const Task& task, MovePlan& plan) {
  const bool root = task.rank == task.root;
  if (!root && tree_place(task).children[0] >= 0) plan.need_scratch(block_bytes(task));
  tree_up(task, plan, root ? Area::kOutput : Area::kScratch);
}

void chain_reduce(const Task& task, MovePlan& plan) {
  const size_t bytes = block_bytes(task);
  const int place = place_of_rank(task);
  const bool root = place == 0;
  const bool end = place == task.size - 1;
  int summed = kNone;
  if (!end) {
    if (!root) plan.need_scratch(bytes);
    summed = plan.add({.kind = Kind::kReduce,
                       .peer = rank_behind(task, -1),
                       .from = input(0),
                       .into = root ? output(0) : scratch(0),
                       .bytes = bytes,
                       .averages = averages(task) && root});
  }
  if (!root) {
    plan.add({.kind = Kind::kSend,
              .peer = rank_behind(task, 1),
              .from = end ? input(0) : scratch(0),
              .bytes = bytes,
              .after = summed});
  }
}

void one_root_reduce(const Task& task, MovePlan& plan) {
  gather_sums(task, plan);
}

void direct_reduce_scatter(const Task& task, MovePlan& plan) {
  const size_t bytes = block_bytes(task);
  int last = kNone;
  for (int i = 1; i < task.size; ++i) {
    const int peer = rank_behind(task, -i);
    const int waiting = rank_behind(task, i);  // it takes from this rank at its i-th turn
    plan.add({.kind = Kind::kSend,
              .peer = waiting,
              .from = input(static_cast<size_t>(waiting) * bytes),
              .bytes = bytes});
    last = plan.add({.kind = Kind::kReduce,
                     .peer = peer,
                     .from = i == 1 ? input(static_cast<size_t>(task.rank) * bytes) : output(0),
                     .into = output(0),
                     .bytes = bytes,
                     .after = last,
                     .averages = averages(task) && i == task.size - 1});
  }
}

// Partial sums alternate between two blocks: one is sent while the next is received.
void ring_reduce_scatter(const Task& task, MovePlan& plan) {
  const size_t bytes = block_bytes(task);
  const int n = task.size;
  if (n > 2) plan.need_scratch(2 * bytes);
  int came = kNone;
  int sent = kNone;
  for (int step = 0; step < n - 1; ++step) {
    const auto going = static_cast<size_t>(rank_behind(task, step + 1));
    const auto coming = static_cast<size_t>(rank_behind(task, step + 2));
    const auto half = static_cast<size_t>(step % 2);
    const int sending =
        plan.add({.kind = Kind::kSend,
                  .peer = rank_behind(task, -1),
                  .from = step == 0 ? input(going * bytes) : scratch((1 - half) * bytes),
                  .bytes = bytes,
                  .after = came});
    came = plan.add({.kind = Kind::kReduce,
                     .peer = rank_behind(task, 1),
                     .from = input(coming * bytes),
                     .into = step == n - 2 ? output(0) : scratch(half * bytes),
                     .bytes = bytes,
                     .overwrites_after = step >= 2 && step < n - 2 ? sent : kNone,
                     .averages = averages(task) && step == n - 2});
    sent = sending;
  }
}

void halving_reduce_scatter(const Task& task, MovePlan& plan) {
  const size_t bytes = block_bytes(task);
  const int n = task.size;
  if (n > 2) plan.need_scratch(static_cast<size_t>(n) * bytes);
  Area mine = Area::kInput;
  int low = 0;
  int last = kNone;
  for (int distance = n / 2; distance >= 1; distance /= 2) {
    const bool lower = (task.rank & distance) == 0;
    const int given = lower ? low + distance : low;
    if (!lower) low += distance;
    const size_t half = static_cast<size_t>(distance) * bytes;
    const size_t kept = static_cast<size_t>(low) * bytes;
    plan.add({.kind = Kind::kSend,
              .peer = task.rank ^ distance,
              .from = {mine, static_cast<size_t>(given) * bytes},
              .bytes = half,
              .after = last});
    last = plan.add({.kind = Kind::kReduce,
                     .peer = task.rank ^ distance,
                     .from = {mine, kept},
                     .into = distance == 1 ? output(0) : scratch(kept),
                     .bytes = half,
                     .after = last,
                     .averages = averages(task) && distance == 1});
    mine = Area::kScratch;
  }
}

}  // namespace lockstep::comm
