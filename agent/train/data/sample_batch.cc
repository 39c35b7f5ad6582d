#include "agent/train/data/sample_source.h"

namespace lockstep::train {

void SampleBatch::reset(const BatchDesign& design, int64_t rows) {
  rows_ = rows;
  counted_ = 0;
  places_.resize(design.tensors.size());
  size_t offset = 0;
  for (size_t i = 0; i < places_.size(); ++i) {
    const int64_t values = design.tensors[i].values;
    places_[i] = {.offset = offset, .values = values};
    offset += static_cast<size_t>(rows * values * kTensorValueBytes);
  }
  bytes_.resize(offset);
}

model::DeviceBatch SampleBatch::placed_at(const void* at) const {
  CHECK(places_.size() <= kBatchTensorsMax);
  model::DeviceBatch batch{.rows = rows_, .counted = counted_};
  for (size_t i = 0; i < places_.size(); ++i) {
    batch.tensors[i] = static_cast<const std::byte*>(at) + places_[i].offset;
  }
  return batch;
}

}  // namespace lockstep::train
