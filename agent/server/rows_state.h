#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/server/row_store.h"
#include "agent/server/unit_state.h"

namespace lockstep::server {

// The rows of one table that one server has. An optimizer's step of a row is the number of its own
// updates, since its states begin with its first one.
class RowsState final : public UnitState {
 public:
  RowsState(const TableSpec& spec, const RowStore::Options& options);

  uint64_t floats() const override { return spec_.dim; }
  Status use(std::span<const uint64_t> keys, uint64_t now) override;
  void read(std::span<const uint64_t> keys, uint64_t now, std::span<float> out) override;
  void update(std::span<const Gradient> gradients, const UpdateStep& step) override;
  Status put(std::span<const float> values) override;
  std::span<const uint64_t> sweep(uint64_t now) override { return store_.sweep(now); }
  void expire(std::span<const uint64_t> keys) override { store_.expire(keys); }
  Size size() const override { return {.rows = store_.rows(), .bytes = store_.bytes()}; }
  std::vector<HotRow> hottest(size_t count, uint64_t now) const override {
    return store_.hottest(count, now);
  }

  SavedState saved_state() const override {
    return {.count = store_.rows(), .floats = spec_.dim * (1 + states_)};
  }
  Status save(const StateSink& sink) const override;
  Status load(const SavedState& saved, const StateSource& source, const StatePlace& place) override;
  Result<Parts> save_parts(uint32_t first, const StateSink& sink) const override;
  void hold_parts(uint32_t parts) override { held_parts_ = parts; }

  const RowStore& store() const { return store_; }

 private:
  bool holds(uint64_t key) const { return store_.part_of(key) < held_parts_; }
  Gradient add_up(std::span<const Gradient> gradients);
  void run(double learning_rate, uint32_t updates);

  TableSpec spec_;
  RowStore store_;
  size_t states_ = 0;
  uint32_t held_parts_ = kStateParts;
  kernels::Stream stream_;
  // Scratch.
  std::vector<uint64_t> sum_keys_;
  std::vector<float> sum_;
  std::vector<bool> is_begun_;
  std::vector<kernels::UpdatedTensor> tensors_;
};

}  // namespace lockstep::server
