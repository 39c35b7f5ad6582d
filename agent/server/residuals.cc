#include "agent/server/residuals.h"

#include <algorithm>

#include "common/base/check.h"

namespace lockstep::server {
namespace {

std::vector<float> gather(std::span<float* const> rows, uint64_t dim) {
  std::vector<float> values(rows.size() * dim);
  for (size_t i = 0; i < rows.size(); ++i) std::copy_n(rows[i], dim, values.data() + i * dim);
  return values;
}

}  // namespace

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

Residuals::EncodedRows Residuals::encode_rows(const Rows& push) {
  const uint64_t dim = catalog_.tables[push.table].dim;
  const std::lock_guard lock(mutex_);
  RowStore& rows = rows_of(push.table);
  rows.sweep(push.clock);
  CHECK(rows.use(push.keys, push.clock).ok());
  std::vector<float*> kept;
  for (const uint64_t key : push.keys) kept.push_back(rows.begin_update(key, push.clock).values);
  for (size_t i = 0; i < kept.size(); ++i) {
    for (size_t k = 0; k < dim; ++k) kept[i][k] += push.gradients[i * dim + k];
  }
  EncodedRows encoded;
  if (push.threshold > 0) {
    encoded.selection = rows_above(gather(kept, dim), dim, push.threshold);
    kept = selected(std::span<float* const>(kept), encoded.selection);
  }
  std::vector<float> values = gather(kept, dim);
  const EncodedFloats what{push.encoding, values.size(), dim};
  encoded.floats.resize(encoded_bytes(what));
  encode_and_keep_loss(what, values, encoded.floats);
  for (size_t i = 0; i < kept.size(); ++i) {
    std::copy_n(values.data() + i * dim, dim, kept[i]);
  }
  return encoded;
}

}  // namespace lockstep::server
