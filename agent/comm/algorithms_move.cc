#include "agent/comm/algorithms.h"

namespace lockstep::comm {
namespace {

using Kind = Move::Kind;
constexpr int kNone = Move::kNone;

size_t place_of_block(const Task& task, int rank) {
  return static_cast<size_t>(rank) * block_bytes(task);
}

// Sends the whole block to another rank.
void send_block(const Task& task, MovePlan& plan, int peer, Place from, int after) {
  plan.add({.kind = Kind::kSend,
            .peer = peer,
            .from = from,
            .bytes = block_bytes(task),
            .after = after});
}

int receive_block(const Task& task, MovePlan& plan, int peer) {
  return plan.add(
      {.kind = Kind::kReceive, .peer = peer, .into = output(0), .bytes = block_bytes(task)});
}

// Fills the root's own output in a broadcast.
void keep_block(const Task& task, MovePlan& plan) {
  plan.add({.kind = Kind::kCopy, .from = input(0), .into = output(0), .bytes = block_bytes(task)});
}

int keep_own_of_all(const Task& task, MovePlan& plan) {
  return plan.add({.kind = Kind::kCopy,
                   .from = input(0),
                   .into = output(place_of_block(task, task.rank)),
                   .bytes = block_bytes(task)});
}

}  // namespace

TreePlace tree_place(const Task& task) {
  const int place = place_of_rank(task);
  TreePlace found;
  if (place > 0) found.parent = rank_at_place(task, (place - 1) / 2);
  for (int child = 0; child < 2; ++child) {
    const int below = 2 * place + 1 + child;
    if (below < task.size) found.children[child] = rank_at_place(task, below);
  }
  return found;
}

void tree_down(const Task& task, MovePlan& plan, Place from, int after) {
  const TreePlace tree = tree_place(task);
  if (tree.parent >= 0) {
    after = receive_block(task, plan, tree.parent);
    from = output(0);
  }
  for (const int child : tree.children) {
    if (child >= 0) send_block(task, plan, child, from, after);
  }
}

void tree_broadcast(const Task& task, MovePlan& plan) {
  tree_down(task, plan, input(0), kNone);
  if (task.rank == task.root) keep_block(task, plan);
}

void chain_broadcast(const Task& task, MovePlan& plan) {
  const int place = place_of_rank(task);
  const int came = place > 0 ? receive_block(task, plan, rank_behind(task, 1)) : kNone;
  if (place < task.size - 1) {
    send_block(task, plan, rank_behind(task, -1), place > 0 ? output(0) : input(0), came);
  }
  if (place == 0) keep_block(task, plan);
}

void one_root_broadcast(const Task& task, MovePlan& plan) {
  if (task.rank != task.root) {
    receive_block(task, plan, task.root);
    return;
  }
  for (int place = 1; place < task.size; ++place) {
    send_block(task, plan, rank_at_place(task, place), input(0), kNone);
  }
  keep_block(task, plan);
}

void direct_all_gather(const Task& task, MovePlan& plan) {
  for (int i = 1; i < task.size; ++i) {
    const int from = rank_behind(task, i);
    send_block(task, plan, rank_behind(task, -i), input(0), kNone);
    plan.add({.kind = Kind::kReceive,
              .peer = from,
              .into = output(place_of_block(task, from)),
              .bytes = block_bytes(task)});
  }
  keep_own_of_all(task, plan);
}

void ring_all_gather(const Task& task, MovePlan& plan) {
  int came = kNone;
  for (int step = 0; step < task.size - 1; ++step) {
    const Place going =
        step == 0 ? input(0) : output(place_of_block(task, rank_behind(task, step)));
    send_block(task, plan, rank_behind(task, -1), going, came);
    came = plan.add({.kind = Kind::kReceive,
                     .peer = rank_behind(task, 1),
                     .into = output(place_of_block(task, rank_behind(task, step + 1))),
                     .bytes = block_bytes(task)});
  }
  keep_own_of_all(task, plan);
}

void doubling_all_gather(const Task& task, MovePlan& plan) {
  keep_own_of_all(task, plan);
  for (int distance = 1; distance < task.size; distance *= 2) {
    const int mine = task.rank & ~(distance - 1);
    const size_t bytes = static_cast<size_t>(distance) * block_bytes(task);
    plan.add({.kind = Kind::kSend,
              .peer = task.rank ^ distance,
              .from = output(place_of_block(task, mine)),
              .bytes = bytes,
              .is_barrier = true});
    plan.add({.kind = Kind::kReceive,
              .peer = task.rank ^ distance,
              .into = output(place_of_block(task, mine ^ distance)),
              .bytes = bytes});
  }
}

void one_root_scatter(const Task& task, MovePlan& plan) {
  if (task.rank != task.root) {
    receive_block(task, plan, task.root);
    return;
  }
  for (int place = 1; place < task.size; ++place) {
    const int peer = rank_at_place(task, place);
    send_block(task, plan, peer, input(place_of_block(task, peer)), kNone);
  }
  plan.add({.kind = Kind::kCopy,
            .from = input(place_of_block(task, task.rank)),
            .into = output(0),
            .bytes = block_bytes(task)});
}

void one_root_gather(const Task& task, MovePlan& plan) {
  if (task.rank != task.root) {
    send_block(task, plan, task.root, input(0), kNone);
    return;
  }
  for (int place = 1; place < task.size; ++place) {
    const int peer = rank_at_place(task, place);
    plan.add({.kind = Kind::kReceive,
              .peer = peer,
              .into = output(place_of_block(task, peer)),
              .bytes = block_bytes(task)});
  }
  keep_own_of_all(task, plan);
}

namespace {

// The blocks for or from each rank, with these counts, or of equal size.
class Blocks {
 public:
  Blocks(const Task& task, std::span<const int64_t> counts) : task_(task) {
    size_t at = 0;
    for (const int64_t count : counts) {
      const size_t bytes = static_cast<size_t>(count) * element_bytes(task);
      by_rank_.push_back({.at = at, .bytes = bytes});
      at += bytes;
    }
  }
  Span of(int rank) const {
    if (!by_rank_.empty()) return by_rank_[static_cast<size_t>(rank)];
    return {.at = place_of_block(task_, rank), .bytes = block_bytes(task_)};
  }

 private:
  const Task& task_;
  std::vector<Span> by_rank_;  // empty if all have the same size
};

}  // namespace

void direct_all_to_all(const Task& task, MovePlan& plan) {
  const Blocks sent(task, task.send_counts);
  const Blocks received(task, task.receive_counts);
  int copied = kNone;
  if (task.in_place) {
    const size_t all = static_cast<size_t>(task.size) * block_bytes(task);
    plan.need_scratch(all);
    copied = plan.add({.kind = Kind::kCopy, .from = input(0), .into = scratch(0), .bytes = all});
  } else {
    const Span own_from = sent.of(task.rank);
    const Span own_into = received.of(task.rank);
    plan.add({.kind = Kind::kCopy,
              .from = input(own_from.at),
              .into = output(own_into.at),
              .bytes = own_from.bytes});
  }
  for (int i = 1; i < task.size; ++i) {
    const int to = rank_behind(task, -i);
    const int from = rank_behind(task, i);
    const Span going = sent.of(to);
    const Span coming = received.of(from);
    plan.add({.kind = Kind::kSend,
              .peer = to,
              .from = {task.in_place ? Area::kScratch : Area::kInput, going.at},
              .bytes = going.bytes,
              .after = copied});
    plan.add({.kind = Kind::kReceive,
              .peer = from,
              .into = output(coming.at),
              .bytes = coming.bytes,
              .overwrites_after = copied});
  }
}

void direct_barrier(const Task& task, MovePlan& plan) {
  for (int i = 1; i < task.size; ++i) {
    plan.add({.kind = Kind::kSend, .peer = rank_behind(task, -i)});
    plan.add({.kind = Kind::kReceive, .peer = rank_behind(task, i)});
  }
}

void dissemination_barrier(const Task& task, MovePlan& plan) {
  for (int distance = 1; distance < task.size; distance *= 2) {
    plan.add({.kind = Kind::kSend, .peer = rank_behind(task, -distance), .is_barrier = true});
    plan.add({.kind = Kind::kReceive, .peer = rank_behind(task, distance)});
  }
}

}  // namespace lockstep::comm
