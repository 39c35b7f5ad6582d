#include "agent/parallel/offload/piece_stream.h"

#include <algorithm>

#include "agent/parallel/offload/piece_streams.h"
#include "kernels/device/arena.h"

namespace lockstep::parallel {
namespace {

// Each array begins at a multiple of this in a buffer.
constexpr int64_t kAlignCount = static_cast<int64_t>(kernels::kArenaAlign / sizeof(float));

uint64_t bytes_of(const FarRange& piece) {
  return static_cast<uint64_t>(piece.count) * sizeof(float);
}

}  // namespace

size_t piece_buffer_bytes(size_t arrays, int64_t count) {
  if (arrays == 0) return 0;
  const auto most = static_cast<int64_t>(kOffloadPieceBytes / sizeof(float) / arrays);
  const int64_t needed = (count + kAlignCount - 1) / kAlignCount * kAlignCount;
  const int64_t room = std::min(most / kAlignCount * kAlignCount, needed);
  return static_cast<size_t>(room) * arrays * sizeof(float);
}

PiecePlaces::PiecePlaces(size_t arrays, const std::array<kernels::Workspace, 2>& buffers)
    : buffers_{static_cast<float*>(buffers[0].data), static_cast<float*>(buffers[1].data)} {
  CHECK(buffers[0].bytes == buffers[1].bytes);
  if (arrays == 0) return;
  const auto of_array = static_cast<int64_t>(buffers[0].bytes / sizeof(float) / arrays);
  room_ = of_array / kAlignCount * kAlignCount;
}

void PieceStream::check(std::span<const FarRange> pieces) const {
  for (const FarRange& piece : pieces) {
    CHECK(piece.first >= 0 && piece.count > 0 && piece.count <= places_.room());
    for (const StreamedArray& array : arrays_) {
      CHECK(piece.first + piece.count <= array.memory->count());
    }
  }
}

void PieceStream::count_read(const FarRange& piece) {
  for (const StreamedArray& array : arrays_) {
    if (array.is_read) counts_.bytes_read += bytes_of(piece);
  }
}

void PieceStream::count_written(const FarRange& piece) {
  for (const StreamedArray& array : arrays_) {
    if (array.is_written) counts_.bytes_written += bytes_of(piece);
  }
}

Result<std::unique_ptr<PieceStream>> make_piece_stream(kernels::Stream& stream,
                                                       std::vector<StreamedArray> arrays,
                                                       const PieceMemory& memory,
                                                       const Clock& clock) {
  if (stream.device().type == kernels::DeviceType::kCpu) {
    return make_host_piece_stream(std::move(arrays), memory, clock);
  }
  return make_device_piece_stream(stream, std::move(arrays), memory);
}

}  // namespace lockstep::parallel
