#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "agent/parallel/offload/piece_streams.h"

namespace lockstep::parallel {
namespace {

// Copies on a thread of its own, which waits for work between runs.
class HostPieceStream final : public PieceStream {
 public:
  HostPieceStream(std::vector<StreamedArray> arrays, const PieceMemory& memory, const Clock& clock)
      : PieceStream(std::move(arrays), memory.device),
        clock_(clock),
        copier_([this](const std::stop_token& stop) { copy_runs(stop); }) {}

  Status run(std::span<const FarRange> pieces, const Visit& visit) override {
    check(pieces);
    const TimePoint begin = clock_.now();
    start(pieces);
    Status visited;
    for (size_t piece = 0; piece < pieces.size() && visited.ok(); ++piece) {
      wait([&] { return fetched_ > piece || !is_copying_; });
      if (!is_fetched(piece)) break;  // the copier failed
      visited = visit(piece);
      const std::lock_guard lock(mutex_);
      if (visited.ok()) ++visited_;
      is_cancelled_ = !visited.ok();
      changed_.notify_all();
    }
    wait([&] { return !is_copying_; });
    counts_.seconds += to_seconds(clock_.now() - begin);
    return visited.ok() ? copied_ : visited;
  }

 private:
  void start(std::span<const FarRange> pieces) {
    const std::lock_guard lock(mutex_);
    pieces_ = pieces;
    fetched_ = visited_ = 0;
    is_cancelled_ = false;
    is_copying_ = true;
    changed_.notify_all();
  }
  // The thread that computes waits.
  template <class Condition>
  void wait(const Condition& condition) {
    const TimePoint begin = clock_.now();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
    counts_.waited_seconds += to_seconds(clock_.now() - begin);
  }

  bool is_fetched(size_t piece) {
    const std::lock_guard lock(mutex_);
    return fetched_ > piece;
  }

  // The thread that copies.
  void copy_runs(const std::stop_token& stop) {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return is_copying_; })) return;
      }
      Status copied = copy_run();
      const std::lock_guard lock(mutex_);
      copied_ = std::move(copied);
      is_copying_ = false;
      changed_.notify_all();
    }
  }
  // Ends early if a visit fails.
  Status copy_run() {
    const size_t size = pieces_.size();
    size_t written = 0;
    for (size_t piece = 0; piece < size; ++piece) {
      if (piece >= 2) {
        if (!wait_for_visit(written)) return {};
        TRY(write_back(written++));
      }
      fetch(piece);
    }
    for (; written < size && wait_for_visit(written); ++written) TRY(write_back(written));
    return {};
  }
  // False if the visit failed.
  bool wait_for_visit(size_t piece) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return visited_ > piece || is_cancelled_; });
    return visited_ > piece;
  }
  void fetch(size_t piece) {
    const FarRange& range = pieces_[piece];
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i].is_read) arrays_[i].memory->read(range.first, values(piece, i));
    }
    count_read(range);
    const std::lock_guard lock(mutex_);
    ++fetched_;
    changed_.notify_all();
  }
  Status write_back(size_t piece) {
    const FarRange& range = pieces_[piece];
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i].is_written) TRY(arrays_[i].memory->write(range.first, values(piece, i)));
    }
    count_written(range);
    return {};
  }
  std::span<float> values(size_t piece, size_t array) const {
    return {places_.at(piece, array), static_cast<size_t>(pieces_[piece].count)};
  }

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::span<const FarRange> pieces_;
  size_t fetched_ = 0;  // pieces
  size_t visited_ = 0;
  bool is_cancelled_ = false;
  bool is_copying_ = false;
  Status copied_;        // of the last run
  std::jthread copier_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<PieceStream> make_host_piece_stream(std::vector<StreamedArray> arrays,
                                                    const PieceMemory& memory, const Clock& clock) {
  return std::make_unique<HostPieceStream>(std::move(arrays), memory, clock);
}

}  // namespace lockstep::parallel
