#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "agent/optim/optimizer.h"
#include "agent/server/limits.h"
#include "agent/server/messages.h"
#include "agent/server/row_store.h"
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

// Reads from these bytes, which outlive it. kCorrupt at their end.
StateSource source_of(std::span<const std::byte> bytes);

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
  // Removes these rows, of which some may not exist: a copy does what sweep() did elsewhere.
  virtual void expire(std::span<const uint64_t> keys) = 0;

  struct Size {
    uint64_t rows = 0;
    uint64_t bytes = 0;  // with optimizer's states
  };
  virtual Size size() const = 0;
  // The rows that are used most at clock `now`, the first one most.
  virtual std::vector<HotRow> hottest(size_t count, uint64_t now) const = 0;

  // Saves everything, and loads what any servers have saved. kCorrupt if the extent does not fit
  // the optimizer.
  virtual SavedState saved_state() const = 0;
  virtual Status save(const StateSink& sink) const = 0;
  virtual Status load(const SavedState& saved, const StateSource& source,
                      const StatePlace& place) = 0;

  // A copy is filled in parts while the original changes. The state is cut into kStateParts parts,
  // rows by a hash of their keys, and a range not at all. Saves part `first` and those after it
  // that fit in kPartBytes.
  struct Parts {
    uint32_t end = 0;  // the first part that was not saved
    SavedState saved;
  };
  virtual Result<Parts> save_parts(uint32_t first, const StateSink& sink) const = 0;
  // From now on this state has the first `parts` parts only. Updates, uses and expiries of others
  // are dropped: they come with their part, by load().
  virtual void hold_parts(uint32_t parts) = 0;
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
  void expire(std::span<const uint64_t>) override {}
  Size size() const override;
  std::vector<HotRow> hottest(size_t, uint64_t) const override { return {}; }
  SavedState saved_state() const override;
  Status save(const StateSink& sink) const override;
  Status load(const SavedState& saved, const StateSource& source, const StatePlace& place) override;
  Result<Parts> save_parts(uint32_t first, const StateSink& sink) const override;
  void hold_parts(uint32_t parts) override { is_held_ = parts == kStateParts; }

 private:
  uint64_t arrays() const { return values_.size() / count_; }

  uint64_t count_;
  optim::OptimizerOptions optimizer_;
  std::vector<float> values_;  // and the states
  std::vector<float> sum_;
  int64_t updates_ = 0;
  bool is_held_ = true;
  kernels::Stream stream_;
};

}  // namespace lockstep::server
