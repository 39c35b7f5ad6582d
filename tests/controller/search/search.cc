#include "tests/controller/search/search.h"

#include <algorithm>
#include <utility>

#include "tests/controller/search/reduction.h"
#include "tests/controller/search/visited.h"
#include "tests/controller/search/world.h"

namespace lockstep::search {
namespace {

constexpr uint64_t kMovesBetweenReports = 1 << 16;

// A state on the path, with the moves that are still to be tried.
struct Frame {
  World world;
  uint64_t digest = 0;
  std::vector<Move> moves{};
  size_t next = 0;
  bool is_good = false;  // the fair way from here reaches the goal
};

class Searcher {
 public:
  Searcher(const sim::Mutation& mutation, const SearchOptions& options)
      : mutation_(mutation), options_(options) {}

  SearchResult run() {
    World first = first_world(
        mutation_, {.faults = options_.faults, .edits = options_.edits, .others = options_.others});
    const uint64_t digest = digest_of(first);
    visited_.insert(digest);
    push(std::move(first), digest);
    while (!path_.empty() && result_.violation.empty() && visited_.size() < options_.states_max) {
      step();
    }
    result_.states = visited_.size();
    result_.is_complete = path_.empty();
    if (!result_.violation.empty()) tell_path();
    return std::move(result_);
  }

 private:
  uint64_t digest_of(const World& world) const {
    return options_.is_exhaustive ? world.exact_digest() : world.digest();
  }

  std::vector<Move> moves_from(const World& world) const {
    std::vector<Move> moves = moves_of(world);
    return options_.is_exhaustive ? moves : needed_moves(world, std::move(moves));
  }

  void step() {
    Frame& frame = path_.back();
    if (frame.next == frame.moves.size()) {
      path_.pop_back();
      return;
    }
    const Move& move = frame.moves[frame.next++];
    ++result_.of_kind[static_cast<size_t>(move.kind)];
    if (++result_.moves % kMovesBetweenReports == 0) report();
    World next = frame.world;
    apply(next, move);
    if (!next.violation.empty()) {
      result_.violation = next.violation;
      return;
    }
    const uint64_t digest = digest_of(next);
    const Visited::Entry entry = visited_.insert(digest);
    if (entry.is_new) return push(std::move(next), digest);
    if (entry.is_good || frame.next > 1) return note_good(entry.is_good);
    // Its own fair way is not known yet, so this state is on it.
    result_.violation = "convergence: the fair way is a cycle that never reaches the goal";
  }

  void push(World world, uint64_t digest) {
    Frame frame{.world = std::move(world), .digest = digest};
    if (options_.on_state) options_.on_state(frame.world);
    frame.moves = moves_from(frame.world);
    frame.is_good = frame.world.is_at_goal();
    const bool is_stuck = frame.moves.empty() || is_fault(frame.moves.front().kind);
    if (!frame.is_good && is_stuck) {
      result_.violation = "convergence: nothing happens any more, and the job has not ended";
    }
    result_.goals += frame.is_good ? 1 : 0;
    const bool is_good = frame.is_good;
    if (is_good) visited_.set_good(digest);
    path_.push_back(std::move(frame));
    result_.depth = std::max(result_.depth, path_.size() - 1);
    if (is_good && path_.size() > 1 && path_[path_.size() - 2].next == 1) spread(path_.size() - 1);
  }

  // The last frame's move led to a state that was known.
  void note_good(bool is_good) {
    Frame& frame = path_.back();
    if (!is_good || frame.next > 1 || frame.is_good) return;
    frame.is_good = true;
    visited_.set_good(frame.digest);
    spread(path_.size() - 1);
  }

  // Marks the states whose fair way leads to path_[from], which is good.
  void spread(size_t from) {
    for (size_t i = from; i > 0 && path_[i - 1].next == 1 && !path_[i - 1].is_good; --i) {
      path_[i - 1].is_good = true;
      visited_.set_good(path_[i - 1].digest);
    }
  }

  void report() {
    result_.states = visited_.size();
    if (options_.on_progress) options_.on_progress(result_);
  }

  void tell_path() {
    for (const Frame& frame : path_) {
      if (frame.next > 0) result_.path.push_back(frame.moves[frame.next - 1].name());
    }
  }

  const sim::Mutation& mutation_;
  const SearchOptions& options_;
  SearchResult result_;
  Visited visited_;
  std::vector<Frame> path_;
};

}  // namespace

SearchResult search(const sim::Mutation& mutation, const SearchOptions& options) {
  return Searcher(mutation, options).run();
}

}  // namespace lockstep::search
