#include "agent/server/residuals.h"

#include <algorithm>

#include "common/base/check.h"

namespace lockstep::server {

std::vector<std::byte> Residuals::encode_range(uint32_t tensor, uint64_t begin,
                                               std::span<const float> gradient, Encoding encoding) {
  const EncodedFloats what{encoding, gradient.size(), kRangeBlock};
  std::vector<std::byte> out(encoded_bytes(what));
  const std::lock_guard lock(mutex_);
  std::vector<float>& residual = tensors_[tensor];
  residual.resize(catalog_.tensors[tensor].count);
  encode_with_feedback(what, gradient, std::span(residual).subspan(begin, gradient.size()), out);
  return out;
}

RowStore& Residuals::rows_of(uint32_t table) {
  // A row counts as rare whatever its frequency.
  const TableSpec spec{.name = catalog_.tables[table].name,
                       .dim = catalog_.tables[table].dim,
                       .optimizer = {.kind = optim::OptimizerKind::kSgd},
                       .life = {.idle_max = kIdleMax, .frequency_min = 1, .half_life = 1}};
  return tables_.try_emplace(table, spec, RowStore::Options{}).first->second;
}

std::vector<std::byte> Residuals::encode_rows(uint32_t table, std::span<const uint64_t> keys,
                                              uint64_t clock, std::span<const float> gradients,
                                              Encoding encoding) {
  const uint64_t dim = catalog_.tables[table].dim;
  const EncodedFloats what{encoding, gradients.size(), dim};
  std::vector<std::byte> out(encoded_bytes(what));
  std::vector<float> residual(gradients.size());
  const std::lock_guard lock(mutex_);
  RowStore& rows = rows_of(table);
  rows.sweep(clock);
  CHECK(rows.use(keys, clock).ok());
  std::vector<float*> kept;
  for (const uint64_t key : keys) kept.push_back(rows.begin_update(key, clock).values);
  for (size_t i = 0; i < keys.size(); ++i) {
    std::copy_n(kept[i], dim, residual.data() + i * dim);
  }
  encode_with_feedback(what, gradients, residual, out);
  for (size_t i = 0; i < keys.size(); ++i) {
    std::copy_n(residual.data() + i * dim, dim, kept[i]);
  }
  return out;
}

}  // namespace lockstep::server
