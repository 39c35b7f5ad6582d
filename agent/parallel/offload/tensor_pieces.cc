#include "agent/parallel/offload/tensor_pieces.h"

#include <algorithm>

#include "common/base/check.h"

namespace lockstep::parallel {
namespace {

using kernels::UpdatedTensor;

// `count` elements of the tensor from `begin` on.
UpdatedTensor part_of(const UpdatedTensor& tensor, int64_t begin, int64_t count) {
  UpdatedTensor part = tensor;
  part.parameter += begin;
  part.gradient += begin;
  for (float*& state : part.states) {
    if (state != nullptr) state += begin;
  }
  if (part.copy) {
    const auto bytes = begin * static_cast<int64_t>(kernels::dtype_bytes(part.copy.dtype));
    part.copy.data = static_cast<char*>(part.copy.data) + bytes;
  }
  part.count = count;
  part.index.first = kernels::index_of(tensor.index, begin);
  return part;
}

// Appends `count` elements from `begin` on. Rows of an index begin with a whole row, so the rest of
// a row that was cut is a part of its own, with consecutive indices.
void append(TensorPiece& piece, const FarTensor& whole, int64_t begin, int64_t count) {
  const int64_t columns = whole.tensor.index.columns;
  while (count > 0) {
    const int64_t column = columns == 0 ? 0 : begin % columns;
    const int64_t taken = column == 0 ? count : std::min(count, columns - column);
    FarTensor part{.tensor = part_of(whole.tensor, begin, taken), .first = whole.first + begin};
    if (column != 0) part.tensor.index = {.first = part.tensor.index.first};
    piece.parts.push_back(part);
    piece.range.count = part.first + taken - piece.range.first;
    begin += taken;
    count -= taken;
  }
}

}  // namespace

std::vector<TensorPiece> cut_tensors(std::span<const FarTensor> tensors, int64_t room) {
  CHECK(room > 0);
  std::vector<TensorPiece> pieces;
  for (const FarTensor& whole : tensors) {
    for (int64_t begin = 0; begin < whole.tensor.count;) {
      const int64_t first = whole.first + begin;
      const int64_t end =
          pieces.empty() ? 0 : pieces.back().range.first + pieces.back().range.count;
      CHECK(first >= end);
      if (pieces.empty() || first - end > kPieceGapMax ||
          first >= pieces.back().range.first + room) {
        pieces.push_back({.range = {.first = first}, .parts = {}});
      }
      const int64_t left = pieces.back().range.first + room - first;
      const int64_t count = std::min(left, whole.tensor.count - begin);
      append(pieces.back(), whole, begin, count);
      begin += count;
    }
  }
  return pieces;
}

}  // namespace lockstep::parallel
