#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "agent/server/catalog.h"
#include "agent/server/encoding.h"
#include "agent/server/row_store.h"

namespace lockstep::server {

// A worker's residuals: what the encoding of its gradients has lost so far, for each element that
// it has pushed. Memory of a tensor: as its gradient; of a row: RowStore's, without states. A row's
// residual is forgotten after kIdleMax clocks without a push. Thread-safe.
class Residuals {
 public:
  static constexpr uint32_t kIdleMax = 1000;
  explicit Residuals(const Catalog& catalog) : catalog_(catalog) {}

  // Encode a gradient with feedback. A range of a tensor, from its element `begin`:
  std::vector<std::byte> encode_range(uint32_t tensor, uint64_t begin,
                                      std::span<const float> gradient, Encoding encoding);
  // Rows of a table: [keys, dim].
  std::vector<std::byte> encode_rows(uint32_t table, std::span<const uint64_t> keys, uint64_t clock,
                                     std::span<const float> gradients, Encoding encoding);

 private:
  RowStore& rows_of(uint32_t table);

  const Catalog& catalog_;
  std::mutex mutex_;
  std::map<uint32_t, std::vector<float>> tensors_;
  std::map<uint32_t, RowStore> tables_;
};

}  // namespace lockstep::server
