#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/optim/optimizer.h"
#include "common/base/result.h"

namespace lockstep::server {

// A worker's gradient for one update. Caller-owned.
struct Gradient {
  std::span<const uint64_t> keys;  // of rows, ascending; empty for a range
  std::span<const float> values;   // the range's, or [keys, dim]
};

struct UpdateStep {
  double learning_rate = 0;
  uint64_t now = 0;  // UnitClock::now() before the update
};

// The parameters of one unit, without the order of calls: that is Unit's (unit.h). A copy of the
// unit, which applies the same updates, has the same bits. Single-threaded.
class UnitState {
 public:
  virtual ~UnitState() = default;

  // Floats of a range, or of a row.
  virtual uint64_t floats() const = 0;
  // Prepares a pull or push of these rows. kUnavailable, with nothing changed, if there is no room
  // for new ones.
  virtual Status use(std::span<const uint64_t> keys, uint64_t now) = 0;
  // Writes the range's values, or those of the rows: [keys, dim].
  virtual void read(std::span<const uint64_t> keys, uint64_t now, std::span<float> out) = 0;
  // Adds up the gradients in their order, and updates once with the sum: g0 + g1, + g2, ...
  virtual void update(std::span<const Gradient> gradients, const UpdateStep& step) = 0;
  // Replaces the values. kInvalid for rows.
  virtual Status put(std::span<const float> values) = 0;
  // Removes a share of the rows that have expired, and returns their keys, valid until the next
  // call.
  virtual std::span<const uint64_t> sweep(uint64_t now) = 0;

  struct Size {
    uint64_t rows = 0;
    uint64_t bytes = 0;  // with optimizer's states
  };
  virtual Size size() const = 0;
};

// A part of a dense tensor and the optimizer's states.
// Memory of n floats with k states: 4 n (1 + k) bytes, and 4 n more once gradients were added up.
class RangeState final : public UnitState {
 public:
  // Zeros.
  RangeState(uint64_t count, const optim::OptimizerOptions& optimizer);

  uint64_t floats() const override { return count_; }
  Status use(std::span<const uint64_t>, uint64_t) override { return {}; }
  void read(std::span<const uint64_t> keys, uint64_t now, std::span<float> out) override;
  void update(std::span<const Gradient> gradients, const UpdateStep& step) override;
  Status put(std::span<const float> values) override;
  std::span<const uint64_t> sweep(uint64_t) override { return {}; }
  Size size() const override;

 private:
  uint64_t count_;
  optim::OptimizerOptions optimizer_;
  std::vector<float> values_;  // and the states
  std::vector<float> sum_;
  int64_t updates_ = 0;
  kernels::Stream stream_;
};

}  // namespace lockstep::server
