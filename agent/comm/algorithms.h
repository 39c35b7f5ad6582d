#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "agent/comm/collectives.h"
#include "agent/comm/host_map.h"
#include "agent/comm/move_plan.h"

namespace lockstep {

// The plans of collectives.h's table, one function an algorithm, for two ranks or more. Each
// appends the moves of task.rank.
void direct_all_reduce(const Task& task, MovePlan& plan);
void ring_all_reduce(const Task& task, MovePlan& plan);
void halving_all_reduce(const Task& task, MovePlan& plan);
void tree_all_reduce(const Task& task, MovePlan& plan);
void one_root_all_reduce(const Task& task, MovePlan& plan);
void tree_reduce(const Task& task, MovePlan& plan);
void chain_reduce(const Task& task, MovePlan& plan);
void one_root_reduce(const Task& task, MovePlan& plan);
void direct_reduce_scatter(const Task& task, MovePlan& plan);
void ring_reduce_scatter(const Task& task, MovePlan& plan);
void halving_reduce_scatter(const Task& task, MovePlan& plan);

void tree_broadcast(const Task& task, MovePlan& plan);
void chain_broadcast(const Task& task, MovePlan& plan);
void one_root_broadcast(const Task& task, MovePlan& plan);
void direct_all_gather(const Task& task, MovePlan& plan);
void ring_all_gather(const Task& task, MovePlan& plan);
void doubling_all_gather(const Task& task, MovePlan& plan);
void one_root_scatter(const Task& task, MovePlan& plan);
void one_root_gather(const Task& task, MovePlan& plan);
void direct_all_to_all(const Task& task, MovePlan& plan);
void direct_barrier(const Task& task, MovePlan& plan);
void dissemination_barrier(const Task& task, MovePlan& plan);

// With task.hosts.
void hosts_all_reduce(const Task& task, MovePlan& plan);
void hosts_halving_all_reduce(const Task& task, MovePlan& plan);
void hosts_reduce_scatter(const Task& task, MovePlan& plan);
void hosts_all_gather(const Task& task, MovePlan& plan);
void hosts_broadcast(const Task& task, MovePlan& plan);
void hosts_reduce(const Task& task, MovePlan& plan);

// What they have in common.
struct Span {
  size_t at = 0;  // bytes
  size_t bytes = 0;
};
inline size_t element_bytes(const Task& task) {
  return data_type_bytes(task.type);
}
inline size_t block_bytes(const Task& task) {
  return static_cast<size_t>(task.count) * element_bytes(task);
}
// The rank so many places behind this one (or ahead of it, if negative), around the ring.
inline int rank_behind(const Task& task, int places) {
  return ((task.rank - places) % task.size + task.size) % task.size;
}
inline Place input(size_t at) {
  return {Area::kInput, at};
}
inline Place output(size_t at) {
  return {Area::kOutput, at};
}
inline Place scratch(size_t at) {
  return {Area::kScratch, at};
}

// Places in a tree over the ranks that has the root at place 0.
struct TreePlace {
  int parent = -1;  // ranks of the group; -1: none
  int children[2] = {-1, -1};
};
TreePlace tree_place(const Task& task);
// The rank at a place of a row that begins with the root.
inline int rank_at_place(const Task& task, int place) {
  return (place + task.root) % task.size;
}
inline int place_of_rank(const Task& task) {
  return (task.rank - task.root + task.size) % task.size;
}

// A block goes from the root to everybody. At the root it lies at `from`, once the move `after` is
// finished (kNone: from the beginning); elsewhere it comes to the output, and both mean nothing.
void tree_down(const Task& task, MovePlan& plan, Place from, int after);

// Ranks that sum up a part of the block among themselves, by recursive halving, and give each other
// the sum, by doubling.
struct Members {
  int count = 2;                    // two or more, numbered from 0
  int number = 0;                   // this rank's
  std::function<int(int)> rank_of;  // in the group, by number
  Span whole;                       // of the block, the same for all
  Area mine = Area::kInput;         // where this rank's values lie
  int after = Move::kNone;          // the move that makes them
};
// Into the output. `on_piece`, if there is one, is told every piece of the sum as the plan goes on,
// with the move that makes or brings it: those of halving_pieces(), in that order.
using OnPiece = std::function<void(const Span&, int move)>;
void sum_among(const Task& task, MovePlan& plan, const Members& members, const OnPiece& on_piece);
std::vector<Span> halving_pieces(const Task& task, const Members& members);

}  // namespace lockstep
