#include "agent/parallel/host_transfer.h"

#include <algorithm>
#include <vector>

namespace lockstep::parallel {

// The runs, cut into what a buffer holds: the rest of one run, some whole ones, part of another.
class HostTransfer::Pieces {
 public:
  struct Part {
    size_t run = 0;
    int64_t first = 0;  // of the run
    int64_t count = 0;
    int64_t at = 0;  // in the buffer

    float* in(std::span<const ValueRun> runs) const { return runs[run].data + first; }
  };
  Pieces(std::span<const ValueRun> runs, size_t piece_bytes)
      : runs_(runs), room_(static_cast<int64_t>(piece_bytes / sizeof(float))) {
    CHECK(room_ > 0);
  }

  std::span<const ValueRun> runs() const { return runs_; }
  // Empty at the end.
  std::vector<Part> next() {
    std::vector<Part> parts;
    for (int64_t at = 0; at < room_ && run_ < runs_.size();) {
      const int64_t count = std::min(room_ - at, runs_[run_].count - first_);
      if (count > 0) parts.push_back({run_, first_, count, at});
      at += count;
      first_ += count;
      if (first_ < runs_[run_].count) continue;
      ++run_;
      first_ = 0;
    }
    return parts;
  }

 private:
  std::span<const ValueRun> runs_;
  int64_t room_;
  size_t run_ = 0;
  int64_t first_ = 0;
};

HostTransfer::HostTransfer(kernels::Stream& stream, const Buffers& buffers) : stream_(&stream) {
  CHECK(buffers[0].bytes == buffers[1].bytes);
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].buffer = buffers[i];
}

// After an error, a copy from or to a buffer may still be under way.
HostTransfer::~HostTransfer() {
  if (has_events_) (void)stream_->synchronize();
}

Status HostTransfer::make_events() {
  if (has_events_) return {};
  for (Slot& slot : slots_) {
    TRY_ASSIGN(slot.copied, kernels::Event::create(stream_->device()));
  }
  has_events_ = true;
  return {};
}

Result<int64_t> HostTransfer::fetch(Pieces& pieces, Slot& slot) {
  int64_t count = 0;
  auto* buffer = static_cast<float*>(slot.buffer.data);
  for (const Pieces::Part& part : pieces.next()) {
    TRY(kernels::copy_bytes(*stream_, {.to = buffer + part.at,
                                       .from = part.in(pieces.runs()),
                                       .bytes = static_cast<size_t>(part.count) * sizeof(float)}));
    count = part.at + part.count;
  }
  TRY(slot.copied.record(stream_->handle()));
  return count;
}

Status HostTransfer::read(std::span<const ValueRun> runs, const Visit& visit) {
  if (is_cpu()) {
    for (const ValueRun& run : runs) TRY(visit({run.data, static_cast<size_t>(run.count)}));
    return {};
  }
  TRY(make_events());
  Pieces pieces(runs, slots_[0].buffer.bytes);
  TRY_ASSIGN(int64_t count, fetch(pieces, slots_[0]));
  for (size_t now = 0; count > 0; now = 1 - now) {
    TRY_ASSIGN(const int64_t next_count, fetch(pieces, slots_[1 - now]));
    TRY(slots_[now].copied.synchronize());
    const auto* values = static_cast<const float*>(slots_[now].buffer.data);
    TRY(visit({values, static_cast<size_t>(count)}));
    count = next_count;
  }
  return stream_->synchronize();  // what failed before the copies
}

Status HostTransfer::write(std::span<const ValueRun> runs, const Fill& fill) {
  if (is_cpu()) {
    for (size_t i = 0; i < runs.size(); ++i) {
      TRY(fill(i, 0, {runs[i].data, static_cast<size_t>(runs[i].count)}));
    }
    return {};
  }
  TRY(make_events());
  Pieces pieces(runs, slots_[0].buffer.bytes);
  std::vector<Pieces::Part> parts = pieces.next();
  for (size_t now = 0; !parts.empty(); now = 1 - now) {
    TRY(slots_[now].copied.synchronize());
    auto* buffer = static_cast<float*>(slots_[now].buffer.data);
    for (const Pieces::Part& part : parts) {
      TRY(fill(part.run, part.first, {buffer + part.at, static_cast<size_t>(part.count)}));
      TRY(kernels::copy_bytes(*stream_,
                              {.to = part.in(runs),
                               .from = buffer + part.at,
                               .bytes = static_cast<size_t>(part.count) * sizeof(float)}));
    }
    TRY(slots_[now].copied.record(stream_->handle()));
    parts = pieces.next();
  }
  return stream_->synchronize();
}

}  // namespace lockstep::parallel
