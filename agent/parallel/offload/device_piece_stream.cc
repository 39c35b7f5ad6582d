#include <array>
#include <utility>

#include "agent/parallel/offload/piece_streams.h"

namespace lockstep::parallel {
namespace {

using kernels::Event;

// The events that order the work on the piece in one buffer.
struct Slot {
  Event fetched;               // on the stream of reads
  Event arrived;               // the computation gets to the piece ...
  Event begun;                 // ... and has waited for it; both with time
  Event computed;              // after the visit
  std::vector<Event> written;  // by array, on the stream of writes
};

// The piece after the next one is read array by array, each as soon as the buffer's previous values
// of that array are written, because a bus carries both directions at once.
class DevicePieceStream final : public PieceStream {
 public:
  DevicePieceStream(kernels::Stream& stream, std::vector<StreamedArray> arrays,
                    const PieceMemory& memory)
      : PieceStream(std::move(arrays), memory.device),
        stream_(stream),
        staging_(arrays_.size(), memory.pinned),
        is_staged_(memory.pinned[0].bytes > 0) {
    for (const StreamedArray& array : arrays_) CHECK(array.memory->is_file() == is_staged_);
    CHECK(!is_staged_ || staging_.room() == places_.room());
  }

  Status make_events() {
    TRY_ASSIGN(reads_, kernels::Stream::create(stream_.device()));
    TRY_ASSIGN(writes_, kernels::Stream::create(stream_.device()));
    for (Event* event : {&slots_[0].arrived, &slots_[0].begun, &slots_[1].arrived, &slots_[1].begun,
                         &begin_, &computed_, &end_}) {
      TRY_ASSIGN(*event, Event::create_timed(stream_.device()));
    }
    for (Slot& slot : slots_) {
      TRY_ASSIGN(slot.fetched, Event::create(stream_.device()));
      TRY_ASSIGN(slot.computed, Event::create(stream_.device()));
      slot.written.resize(arrays_.size());
      for (Event& event : slot.written) {
        TRY_ASSIGN(event, Event::create(stream_.device()));
      }
    }
    return {};
  }

  // After an error, copies and kernels may still use the buffers.
  Status run(std::span<const FarRange> pieces, const Visit& visit) override {
    check(pieces);
    Status done = issue(pieces, visit);
    if (done.ok()) return count_seconds();
    for (kernels::Stream* stream : {&reads_, &writes_, &stream_}) (void)stream->synchronize();
    return done;
  }

 private:
  Slot& slot(size_t piece) { return slots_[piece % 2]; }

  Status issue(std::span<const FarRange> pieces, const Visit& visit) {
    TRY(begin_.record(stream_.handle()));
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      if (piece == 0) TRY(fetch(pieces[0], 0));
      TRY(compute(pieces[piece], piece, visit));
      if (piece > 0) TRY(finish(pieces[piece - 1], piece - 1));
      if (piece + 1 < pieces.size()) TRY(fetch(pieces[piece + 1], piece + 1));
    }
    TRY(computed_.record(stream_.handle()));
    if (!pieces.empty()) TRY(finish(pieces.back(), pieces.size() - 1));
    for (const Slot& slot : slots_) {
      for (const Event& written : slot.written) TRY(written.make_stream_wait(stream_.handle()));
    }
    TRY(end_.record(stream_.handle()));
    return stream_.synchronize();
  }

  Status fetch(const FarRange& range, size_t piece) {
    const size_t bytes = static_cast<size_t>(range.count) * sizeof(float);
    for (size_t i = 0; i < arrays_.size(); ++i) {
      TRY(slot(piece).written[i].make_stream_wait(reads_.handle()));
      if (!arrays_[i].is_read) continue;
      const float* from = arrays_[i].memory->data() + range.first;
      if (is_staged_) {
        float* staged = staging_.at(piece, i);
        arrays_[i].memory->read(range.first, {staged, static_cast<size_t>(range.count)});
        from = staged;
      }
      TRY(kernels::copy_bytes(reads_, {.to = places_.at(piece, i), .from = from, .bytes = bytes}));
    }
    count_read(range);
    return slot(piece).fetched.record(reads_.handle());
  }

  // Issues the visit and the copies that write the piece back.
  Status compute(const FarRange& range, size_t piece, const Visit& visit) {
    Slot& at = slot(piece);
    TRY(at.arrived.record(stream_.handle()));
    TRY(at.fetched.make_stream_wait(stream_.handle()));
    TRY(at.begun.record(stream_.handle()));
    TRY(visit(piece));
    TRY(at.computed.record(stream_.handle()));
    TRY(at.computed.make_stream_wait(writes_.handle()));
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i].is_written) {
        float* to = is_staged_ ? staging_.at(piece, i) : arrays_[i].memory->data() + range.first;
        TRY(kernels::copy_bytes(writes_,
                                {.to = to,
                                 .from = places_.at(piece, i),
                                 .bytes = static_cast<size_t>(range.count) * sizeof(float)}));
      }
      TRY(at.written[i].record(writes_.handle()));
    }
    return {};
  }

  // The host's part after a piece: waits until the slot's events and staging memory are free.
  Status finish(const FarRange& range, size_t piece) {
    Slot& at = slot(piece);
    TRY(at.begun.synchronize());
    TRY_ASSIGN(const double waited, at.arrived.seconds_until(at.begun));
    counts_.waited_seconds += waited;
    for (size_t i = 0; i < arrays_.size() && is_staged_; ++i) {
      TRY(at.written[i].synchronize());
      if (!arrays_[i].is_written) continue;
      TRY(arrays_[i].memory->write(range.first,
                                   {staging_.at(piece, i), static_cast<size_t>(range.count)}));
    }
    count_written(range);
    return {};
  }

  Status count_seconds() {
    TRY_ASSIGN(const double all, begin_.seconds_until(end_));
    TRY_ASSIGN(const double last, computed_.seconds_until(end_));
    counts_.seconds += all;
    counts_.waited_seconds += last;
    return {};
  }

  kernels::Stream& stream_;
  const PiecePlaces staging_;
  const bool is_staged_;
  kernels::Stream reads_;
  kernels::Stream writes_;
  std::array<Slot, 2> slots_;
  Event begin_;     // these with time
  Event computed_;  // all pieces
  Event end_;       // and written back
};

}  // namespace

Result<std::unique_ptr<PieceStream>> make_device_piece_stream(kernels::Stream& stream,
                                                              std::vector<StreamedArray> arrays,
                                                              const PieceMemory& memory) {
  auto made = std::make_unique<DevicePieceStream>(stream, std::move(arrays), memory);
  TRY(made->make_events());
  return std::unique_ptr<PieceStream>(std::move(made));
}

}  // namespace lockstep::parallel
