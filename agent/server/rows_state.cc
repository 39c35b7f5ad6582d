#include "agent/server/rows_state.h"

#include <algorithm>
#include <iterator>

#include "kernels/ops/op_table.h"

namespace lockstep::server {

RowsState::RowsState(const TableSpec& spec, const RowStore::Options& options)
    : spec_(spec), store_(spec, options), states_(optim::state_kinds(spec.optimizer).size()) {}

Status RowsState::use(std::span<const uint64_t> keys, uint64_t now) {
  if (held_parts_ == kStateParts) return store_.use(keys, now);
  std::vector<uint64_t> held;
  std::ranges::copy_if(keys, std::back_inserter(held), [&](uint64_t key) { return holds(key); });
  return store_.use(held, now);
}

void RowsState::read(std::span<const uint64_t> keys, uint64_t now, std::span<float> out) {
  store_.read(keys, now, out);
}

Status RowsState::put(std::span<const float>) {
  return invalid("[server] " + spec_.name + ": rows cannot be put");
}

// A row is its RowMeta, then its floats.
Status RowsState::save(const StateSink& sink) const {
  return store_.visit([&](const RowMeta& meta, std::span<const float> floats) -> Status {
    TRY(sink(std::as_bytes(std::span(&meta, 1))));
    return sink(std::as_bytes(floats));
  });
}

Result<UnitState::Parts> RowsState::save_parts(uint32_t first, const StateSink& sink) const {
  Parts parts{.end = first, .saved = {.floats = spec_.dim * (1 + states_)}};
  const uint64_t row_bytes = sizeof(RowMeta) + parts.saved.floats * sizeof(float);
  do {
    TRY(store_.visit_part(parts.end,
                          [&](const RowMeta& meta, std::span<const float> floats) -> Status {
                            ++parts.saved.count;
                            TRY(sink(std::as_bytes(std::span(&meta, 1))));
                            return sink(std::as_bytes(floats));
                          }));
    ++parts.end;
  } while (parts.end < kStateParts && parts.saved.count * row_bytes < kPartBytes);
  return parts;
}

Status RowsState::load(const SavedState& saved, const StateSource& source,
                       const StatePlace& place) {
  std::vector<float> floats(spec_.dim * (1 + states_));
  if (saved.floats != floats.size()) {
    return corrupt("[server] " + spec_.name + ": expected rows of " +
                   std::to_string(floats.size()) + " floats, got " + std::to_string(saved.floats));
  }
  for (uint64_t row = 0; row < saved.count; ++row) {
    RowMeta meta;
    TRY(source(std::as_writable_bytes(std::span(&meta, 1))));
    TRY(source(std::as_writable_bytes(std::span(floats))));
    if (place.holds(meta.key)) TRY(store_.put(meta, floats));
  }
  return {};
}

// Returns all keys, ascending, and the sum of each one's rows. A row that only one worker has is
// that worker's.
Gradient RowsState::add_up(std::span<const Gradient> gradients) {
  if (gradients.size() == 1) return gradients.front();
  sum_keys_.clear();
  for (const Gradient& gradient : gradients) {
    sum_keys_.insert(sum_keys_.end(), gradient.keys.begin(), gradient.keys.end());
  }
  std::ranges::sort(sum_keys_);
  sum_keys_.erase(std::ranges::unique(sum_keys_).begin(), sum_keys_.end());
  sum_.resize(sum_keys_.size() * spec_.dim);
  is_begun_.assign(sum_keys_.size(), false);
  for (const Gradient& gradient : gradients) {
    const float* from = gradient.values.data();
    size_t at = 0;
    for (const uint64_t key : gradient.keys) {
      while (sum_keys_[at] != key) ++at;
      float* const to = sum_.data() + at * spec_.dim;
      const bool adds = is_begun_[at];
      is_begun_[at] = true;
      for (uint32_t i = 0; i < spec_.dim; ++i) to[i] = adds ? to[i] + from[i] : from[i];
      from += spec_.dim;
    }
  }
  return {.keys = sum_keys_, .values = sum_};
}

void RowsState::update(std::span<const Gradient> gradients, const UpdateStep& step) {
  const Gradient sum = add_up(gradients);
  uint32_t updates = 0;
  store_.look_up(sum.keys, [&](size_t i, std::optional<uint32_t> found) {
    const uint64_t key = sum.keys[i];
    if (!holds(key)) return;
    const RowStore::Row row = store_.begin_update(key, found, step.now);
    // Rows with the same number of updates are one call of the kernel. Rows do not move.
    if (row.updates != updates) run(step.learning_rate, updates);
    updates = row.updates;
    kernels::UpdatedTensor tensor{.parameter = row.values,
                                  .gradient = sum.values.data() + i * spec_.dim,
                                  .count = spec_.dim,
                                  .weight_decay = static_cast<float>(spec_.optimizer.weight_decay)};
    for (size_t k = 0; k < states_; ++k) tensor.states[k] = row.states + k * spec_.dim;
    tensors_.push_back(tensor);
  });
  run(step.learning_rate, updates);
}

void RowsState::run(double learning_rate, uint32_t updates) {
  if (tensors_.empty()) return;
  optim::update_tensors(kernels::cpu_ops(), stream_, spec_.optimizer,
                        {.learning_rate = learning_rate, .step = updates}, tensors_);
  tensors_.clear();
}

}  // namespace lockstep::server
