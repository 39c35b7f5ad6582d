#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "agent/comm/collectives.h"
#include "agent/comm/host_map.h"
#include "agent/comm/move_plan.h"

namespace lockstep::comm {

// The plans in the table of collectives.h, one function per algorithm, for two or more ranks. Each
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

// These need task.hosts.
void hosts_all_reduce(const Task& task, MovePlan& plan);
void hosts_halving_all_reduce(const Task& task, MovePlan& plan);
void hosts_reduce_scatter(const Task& task, MovePlan& plan);
void hosts_all_gather(const Task& task, MovePlan& plan);
void hosts_broadcast(const Task& task, MovePlan& plan);
void hosts_reduce(const Task& task, MovePlan& plan);

// Helpers that the algorithms share.
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
// Returns the rank this many places before this one around the ring (after it, if negative).
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

// A rank's neighbours in a binary tree over the ranks that has the root at place 0.
struct TreePlace {
  int parent = -1;  // ranks of the group; -1: none
  int children[2] = {-1, -1};
};
TreePlace tree_place(const Task& task);
// Returns the rank at a place of the row of ranks that begins with the root.
inline int rank_at_place(const Task& task, int place) {
  return (place + task.root) % task.size;
}
inline int place_of_rank(const Task& task) {
  return (task.rank - task.root + task.size) % task.size;
}

// Appends a broadcast down the tree. At the root the block lies at `from` once the move `after` is
// finished (kNone: from the beginning). On other ranks it arrives in the output, and both arguments
// are ignored.
void tree_down(const Task& task, MovePlan& plan, Place from, int after);

// Ranks that sum a part of the block among themselves by recursive halving, and then share the sum
// by doubling.
struct Members {
  int count = 2;                    // two or more, numbered from 0
  int number = 0;                   // of this rank
  std::function<int(int)> rank_of;  // rank in the group, by number
  Span whole;                       // part of the block; the same for all
  Area mine = Area::kInput;         // where this rank's values are
  int after = Move::kNone;          // the move that makes these values
};
// Sums into the output. Calls `on_piece`, if set, for every piece of the sum, in the order of
// halving_pieces(), with the move that makes or receives it.
using OnPiece = std::function<void(const Span&, int move)>;
void sum_among(const Task& task, MovePlan& plan, const Members& members, const OnPiece& on_piece);
std::vector<Span> halving_pieces(const Task& task, const Members& members);

}  // namespace lockstep::comm
