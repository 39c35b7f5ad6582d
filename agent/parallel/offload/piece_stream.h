#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "agent/parallel/offload/far_memory.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// Size of each of the two buffers, for all arrays of a piece together. A GPU copies 8 MiB in about
// 0.2 ms, compared with which launches and events (some 10 us) are short. On a CPU, AdamW was
// fastest with 4 to 8 MiB: larger pieces leave the caches between copy and computation, smaller
// ones wait more often (bench_offload).
inline constexpr size_t kOffloadPieceBytes = size_t{8} << 20;

// A far array that is streamed.
struct StreamedArray {
  const FarMemory* memory = nullptr;
  bool is_read = true;     // otherwise the piece's values are unspecified before the visit
  bool is_written = true;  // otherwise they are dropped after the visit
};

// The memory that pieces pass through. Caller-owned, for the stream alone, outlives it.
struct PieceMemory {
  // Two buffers of the same size in memory that the computation reads: the device's.
  std::array<kernels::Workspace, 2> device = {};
  // Page-locked and of the same size; only for scratch files on a GPU, otherwise empty.
  std::array<kernels::Workspace, 2> pinned = {};
};

// Returns the bytes of one buffer for `arrays` far arrays of `count` floats. Pure.
size_t piece_buffer_bytes(size_t arrays, int64_t count);

// The costs of streaming since the stream was made.
struct OffloadCounts {
  uint64_t bytes_read = 0;     // from far memory
  uint64_t bytes_written = 0;  // to far memory
  double seconds = 0;          // in run(); on a GPU, of its stream
  double waited_seconds = 0;   // the part of them in which no piece was computed on
};

// The places of pieces in the buffers: piece i is in buffer i % 2, array after array.
class PiecePlaces {
 public:
  PiecePlaces(size_t arrays, const std::array<kernels::Workspace, 2>& buffers);

  // Returns how many floats of each array a piece can have.
  int64_t room() const { return room_; }
  float* at(size_t piece, size_t array) const {
    return buffers_[piece % 2] + static_cast<int64_t>(array) * room_;
  }

 private:
  std::array<float*, 2> buffers_ = {};
  int64_t room_ = 0;
};

// Streams far arrays through two buffers: while one piece is computed on, the piece before it is
// written back and the piece after it is read. On a CPU, a thread copies between the buffers and
// the scratch file. On a GPU, copies are issued on two streams of their own, ordered by events; the
// host copies to and from a scratch file meanwhile. Allocates nothing in run(). One thread.
class PieceStream {
 public:
  virtual ~PieceStream() = default;

  // Calls `visit` for each piece in order; the same range of each array is then at
  // places().at(piece, array). `visit` issues work on the stream of make_piece_stream(). Returns
  // when all pieces are computed and written back. An error of `visit` or of the device ends the
  // run: then the pieces before it may have been written back or not, and nothing uses the buffers
  // any more. Ranges do not overlap, and none is longer than places().room().
  using Visit = std::function<Status(size_t piece)>;
  virtual Status run(std::span<const FarRange> pieces, const Visit& visit) = 0;

  const PiecePlaces& places() const { return places_; }
  std::span<const StreamedArray> arrays() const { return arrays_; }
  const OffloadCounts& counts() const { return counts_; }

 protected:
  PieceStream(std::vector<StreamedArray> arrays, const std::array<kernels::Workspace, 2>& buffers)
      : arrays_(std::move(arrays)), places_(arrays_.size(), buffers) {}

  void check(std::span<const FarRange> pieces) const;
  // Counts what run() reads or writes for a piece.
  void count_read(const FarRange& piece);
  void count_written(const FarRange& piece);

  const std::vector<StreamedArray> arrays_;
  const PiecePlaces places_;
  OffloadCounts counts_;
};

// Makes the form that the stream's device needs. The stream, the arrays' memory and the clock
// outlive it. Far memory of a GPU is either page-locked or, with PieceMemory::pinned, in scratch
// files. kUnavailable if the device is.
Result<std::unique_ptr<PieceStream>> make_piece_stream(kernels::Stream& stream,
                                                       std::vector<StreamedArray> arrays,
                                                       const PieceMemory& memory,
                                                       const Clock& clock);

}  // namespace lockstep::parallel
