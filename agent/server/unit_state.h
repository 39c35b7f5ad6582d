#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

// Writes bytes of a saved state, or reads exactly as many as there is room for. Their errors end
// the save or load.
using StateSink = std::function<Status(std::span<const std::byte>)>;
using StateSource = std::function<Status(std::span<std::byte>)>;

// The extent of a saved state: elements, updates and arrays (values and the optimizer's states) of
// a range; rows, 0 and floats of each row with its states of a table.
struct SavedState {
  uint64_t count = 0;
  uint64_t updates = 0;
  uint64_t floats = 0;
};

// The part of a saved state that a unit takes.
struct StatePlace {
  uint64_t saved_begin =
      0;  // of ranges: first element that was saved, and the unit's own first one
  uint64_t own_begin = 0;
  std::function<bool(uint64_t key)> holds;  // of tables
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

  // Saves everything, and loads what any servers have saved. kCorrupt if the extent does not fit
  // the optimizer.
  virtual SavedState saved_state() const = 0;
  virtual Status save(const StateSink& sink) const = 0;
  virtual Status load(const SavedState& saved, const StateSource& source,
                      const StatePlace& place) = 0;
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
  SavedState saved_state() const override;
  Status save(const StateSink& sink) const override;
  Status load(const SavedState& saved, const StateSource& source, const StatePlace& place) override;

 private:
  uint64_t arrays() const { return values_.size() / count_; }

  uint64_t count_;
  optim::OptimizerOptions optimizer_;
  std::vector<float> values_;  // and the states
  std::vector<float> sum_;
  int64_t updates_ = 0;
  kernels::Stream stream_;
};

}  // namespace lockstep::server
