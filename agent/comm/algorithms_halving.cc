// Recursive halving and doubling, among all ranks or among one rank of each host.
#include <bit>

#include "agent/comm/algorithms.h"

namespace lockstep::comm {
namespace {

using Kind = Move::Kind;

// Chooses the members that take part: a power of two of them, each with a place. If there are
// `rest` more, the first 2 * rest members form pairs, and the odd one of each pair takes part.
struct PowerOfTwoSubset {
  explicit PowerOfTwoSubset(int members)
      : count(static_cast<int>(std::bit_floor(static_cast<unsigned>(members)))),
        rest(members - count) {}

  bool is_paired(int number) const { return number < 2 * rest; }
  bool takes_part(int number) const { return !is_paired(number) || number % 2 == 1; }
  int place_of(int number) const { return is_paired(number) ? number / 2 : number - rest; }
  int number_at(int place) const { return place < rest ? 2 * place + 1 : place + rest; }

  int count;
  int rest;
};

class Exchange {
 public:
  Exchange(const Task& task, const Members& members)
      : task_(task), members_(members), subset_(members.count) {}

  void add_to(MovePlan& plan, const OnPiece& on_piece) const {
    subset_.takes_part(members_.number) ? run_halving(plan, on_piece) : fold_out(plan, on_piece);
  }
  std::vector<Span> pieces() const;

 private:
  void fold_out(MovePlan& plan, const OnPiece& on_piece) const;
  void run_halving(MovePlan& plan, const OnPiece& on_piece) const;
  int peer_at(int place) const { return members_.rank_of(subset_.number_at(place)); }
  // Returns segments [from, to), which are adjacent.
  Span segments(int from, int to) const;
  // Returns the segments received at this step of the doubling.
  Span coming(int distance) const;
  int halve(MovePlan& plan, Area mine, int after) const;
  int double_up(MovePlan& plan, int summed, const OnPiece& on_piece) const;

  const Task& task_;
  const Members& members_;
  const PowerOfTwoSubset subset_;
};

Span Exchange::segments(int from, int to) const {
  const size_t element = element_bytes(task_);
  const auto count = static_cast<int64_t>(members_.whole.bytes / element);
  const Segment first = ring_segment(count, subset_.count, from);
  const Segment last = ring_segment(count, subset_.count, to - 1);
  return {.at = members_.whole.at + static_cast<size_t>(first.begin) * element,
          .bytes = static_cast<size_t>(last.end - first.begin) * element};
}

Span Exchange::coming(int distance) const {
  const int theirs = (subset_.place_of(members_.number) & ~(distance - 1)) ^ distance;
  return segments(theirs, theirs + distance);
}

// Halves the range of segments at every step, down to the rank's own; returns the last move.
int Exchange::halve(MovePlan& plan, Area mine, int after) const {
  const int place = subset_.place_of(members_.number);
  int low = 0;
  int high = subset_.count;
  for (int distance = subset_.count / 2; distance >= 1; distance /= 2) {
    const int middle = low + distance;
    const bool lower = (place & distance) == 0;
    const Span given = segments(lower ? middle : low, lower ? high : middle);
    (lower ? high : low) = middle;
    const Span kept = segments(low, high);
    const int peer = peer_at(place ^ distance);
    plan.add({.kind = Kind::kSend,
              .peer = peer,
              .from = {mine, given.at},
              .bytes = given.bytes,
              .after = after});
    after = plan.add({.kind = Kind::kReduce,
                      .peer = peer,
                      .from = {mine, kept.at},
                      .into = output(kept.at),
                      .bytes = kept.bytes,
                      .after = after,
                      .averages = task_.op == ReduceOp::kAvg && distance == 1});
    mine = Area::kOutput;
  }
  return after;
}

// A step starts only when the step before has received everything, so what it sends is complete.
// Returns the last move.
int Exchange::double_up(MovePlan& plan, int summed, const OnPiece& on_piece) const {
  const int place = subset_.place_of(members_.number);
  int came = summed;
  for (int distance = 1; distance < subset_.count; distance *= 2) {
    const int first = place & ~(distance - 1);
    const int peer = peer_at(place ^ distance);
    const Span going = segments(first, first + distance);
    const Span taken = coming(distance);
    plan.add({.kind = Kind::kSend,
              .peer = peer,
              .from = output(going.at),
              .bytes = going.bytes,
              .starts_after = came});
    came = plan.add({.kind = Kind::kReceive,
                     .peer = peer,
                     .into = output(taken.at),
                     .bytes = taken.bytes,
                     .starts_after = came});
    if (on_piece) on_piece(taken, came);
  }
  return came;
}

// For the member of a pair that takes no part: sends its values, and receives the sum.
void Exchange::fold_out(MovePlan& plan, const OnPiece& on_piece) const {
  const Span& whole = members_.whole;
  const int peer = members_.rank_of(members_.number + 1);
  plan.add({.kind = Kind::kSend,
            .peer = peer,
            .from = {members_.mine, whole.at},
            .bytes = whole.bytes,
            .after = members_.after});
  const int came = plan.add(
      {.kind = Kind::kReceive, .peer = peer, .into = output(whole.at), .bytes = whole.bytes});
  if (on_piece) on_piece(whole, came);
}

void Exchange::run_halving(MovePlan& plan, const OnPiece& on_piece) const {
  const Span& whole = members_.whole;
  const int number = members_.number;
  const bool is_paired = subset_.is_paired(number);
  const int peer = is_paired ? members_.rank_of(number - 1) : 0;
  int after = members_.after;
  if (is_paired) {
    after = plan.add({.kind = Kind::kReduce,
                      .peer = peer,
                      .from = {members_.mine, whole.at},
                      .into = output(whole.at),
                      .bytes = whole.bytes,
                      .after = after});
  }
  const int summed = halve(plan, is_paired ? Area::kOutput : members_.mine, after);
  const int place = subset_.place_of(number);
  if (on_piece) on_piece(segments(place, place + 1), summed);
  const int last = double_up(plan, summed, on_piece);
  if (!is_paired) return;
  plan.add({.kind = Kind::kSend,
            .peer = peer,
            .from = output(whole.at),
            .bytes = whole.bytes,
            .starts_after = last});
}

std::vector<Span> Exchange::pieces() const {
  if (!subset_.takes_part(members_.number)) return {members_.whole};
  const int place = subset_.place_of(members_.number);
  std::vector<Span> pieces = {segments(place, place + 1)};
  for (int distance = 1; distance < subset_.count; distance *= 2) {
    pieces.push_back(coming(distance));
  }
  return pieces;
}

}  // namespace

void sum_among(const Task& task, MovePlan& plan, const Members& members, const OnPiece& on_piece) {
  Exchange(task, members).add_to(plan, on_piece);
}

std::vector<Span> halving_pieces(const Task& task, const Members& members) {
  return Exchange(task, members).pieces();
}

void halving_all_reduce(const Task& task, MovePlan& plan) {
  const Members all{.count = task.size,
                    .number = task.rank,
                    .rank_of = [](int number) { return number; },
                    .whole = {.at = 0, .bytes = block_bytes(task)}};
  sum_among(task, plan, all, {});
}

}  // namespace lockstep::comm
