#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/model/device_batch.h"
#include "common/base/check.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"

namespace lockstep::train {

// A micro-batch in memory of the host: the tensors of a BatchDesign, one after the other, without
// gaps.
class SampleBatch {
 public:
  // Makes room for `rows` samples, of which nothing counts yet. Their values are unspecified.
  // Allocates only if the batch has never been that large.
  void reset(const BatchDesign& design, int64_t rows);

  int64_t rows() const { return rows_; }
  int64_t counted() const { return counted_; }
  void count(int64_t terms) { counted_ += terms; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Returns all values of a tensor, or those of one sample. T has the tensor's type.
  template <class T>
  std::span<T> values(size_t tensor) {
    return {reinterpret_cast<T*>(bytes_.data() + places_[tensor].offset),
            static_cast<size_t>(rows_ * places_[tensor].values)};
  }
  template <class T>
  std::span<const T> values(size_t tensor) const {
    return {reinterpret_cast<const T*>(bytes_.data() + places_[tensor].offset),
            static_cast<size_t>(rows_ * places_[tensor].values)};
  }
  template <class T>
  std::span<T> row(size_t tensor, int64_t row) {
    const int64_t each = places_[tensor].values;
    return values<T>(tensor).subspan(static_cast<size_t>(row * each), static_cast<size_t>(each));
  }

  // Returns the batch as a model reads it from a copy of bytes() at `at`.
  model::DeviceBatch placed_at(const void* at) const;

 private:
  struct Place {
    size_t offset = 0;   // bytes
    int64_t values = 0;  // per sample
  };
  int64_t rows_ = 0;
  int64_t counted_ = 0;
  std::vector<Place> places_;
  std::vector<std::byte> bytes_;
};

// The data of a job as samples, in one order of training for each seed. Pure functions of the data:
// every rank reads the samples that are its own. Reading is thread-safe. Errors blame the data.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual const BatchDesign& design() const = 0;
  // Returns the size of all data, for example "4000 tokens".
  virtual std::string size() const = 0;
  virtual int64_t validation_samples() const = 0;
  // Looks for values that no rank could train with, in all of the data or a sample of it
  // (data_check.h).
  virtual Status check() const = 0;

  // A training sample, counted over all ranks and epochs, in the seed's order.
  struct TrainingSample {
    int64_t index = 0;
    uint64_t seed = 1;
  };
  // Fills all of a row of a batch that was reset to design(), and counts it.
  virtual Status read_training(const TrainingSample& sample, int64_t row,
                               SampleBatch& batch) const = 0;
  // Resets the batch to at most `rows` samples, validation samples [first, first + rows). Samples
  // past the end are missing or do not count. `first` is below validation_samples().
  virtual Status read_validation(int64_t first, int64_t rows, SampleBatch& batch) const = 0;
};

}  // namespace lockstep::train
