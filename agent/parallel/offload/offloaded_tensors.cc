#include "agent/parallel/offload/offloaded_tensors.h"

#include <optional>
#include <utility>

#include "agent/parallel/offload/tensor_pieces.h"

namespace lockstep::parallel {
namespace {

using kernels::UpdatedTensor;

// Calls use(far array, pointer of the tensor) for each pointer that is far, in the order in which
// arrays are streamed.
template <class Tensor, class Use>
void for_far(const FarArrays& far, Tensor& tensor, const Use& use) {
  for (size_t k = 0; k < far.states.size(); ++k) {
    if (far.states[k] != nullptr) use(*far.states[k], tensor.states[k]);
  }
  if (far.parameters != nullptr) use(*far.parameters, tensor.parameter);
}

std::vector<StreamedArray> streamed_arrays(const FarArrays& far) {
  std::vector<StreamedArray> arrays;
  UpdatedTensor none;
  for_far(far, none, [&](const FarMemory& memory, float*) {
    arrays.push_back({.memory = &memory, .is_written = far.is_written});
  });
  return arrays;
}

FarTensor far_tensor(const FarArrays& far, const UpdatedTensor& tensor) {
  std::optional<int64_t> first;
  for_far(far, tensor, [&](const FarMemory& memory, const float* values) {
    const int64_t place = values - memory.data();
    CHECK(place >= 0 && place + tensor.count <= memory.count());
    CHECK(!first || *first == place);
    first = place;
  });
  return {.tensor = tensor, .first = first.value_or(0)};
}

}  // namespace

size_t FarArrays::size() const {
  return streamed_arrays(*this).size();
}

Result<OffloadedTensors> OffloadedTensors::create(kernels::Stream& stream, const FarArrays& far,
                                                  std::span<const UpdatedTensor> tensors,
                                                  const PieceMemory& memory, const Clock& clock) {
  CHECK(far.size() > 0);
  OffloadedTensors offloaded;
  TRY_ASSIGN(offloaded.stream_, make_piece_stream(stream, streamed_arrays(far), memory, clock));
  const PiecePlaces& places = offloaded.stream_->places();
  std::vector<FarTensor> found;
  for (const UpdatedTensor& tensor : tensors) found.push_back(far_tensor(far, tensor));
  for (const TensorPiece& piece : cut_tensors(found, places.room())) {
    std::vector<UpdatedTensor> in_buffer;
    for (const FarTensor& part : piece.parts) {
      UpdatedTensor& tensor = in_buffer.emplace_back(part.tensor);
      size_t array = 0;
      for_far(far, tensor, [&](const FarMemory&, float*& values) {
        values = places.at(offloaded.ranges_.size(), array++) + (part.first - piece.range.first);
      });
    }
    offloaded.ranges_.push_back(piece.range);
    offloaded.tensors_.push_back(std::move(in_buffer));
  }
  return offloaded;
}

Status OffloadedTensors::visit(const Visit& visit) {
  return stream_->run(ranges_, [&](size_t piece) { return visit(tensors_[piece]); });
}

}  // namespace lockstep::parallel
