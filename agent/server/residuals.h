#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "agent/server/catalog.h"
#include "agent/server/encoding.h"
#include "agent/server/row_selection.h"
#include "agent/server/row_store.h"

namespace lockstep::server {

// A worker's residuals: what the encoding of its gradients has lost so far, and gradients that were
// kept back, for each element that it has pushed. Memory of a tensor: as its gradient; of a row:
// RowStore's, without states. A row's residual is forgotten after kIdleMax clocks without a push.
// Thread-safe.
class Residuals {
 public:
  static constexpr uint32_t kIdleMax = 1000;
  explicit Residuals(const Catalog& catalog) : catalog_(catalog) {}

  // Encode a gradient with feedback. A range of a tensor, from its element `begin`:
  std::vector<std::byte> encode_range(uint32_t tensor, uint64_t begin,
                                      std::span<const float> gradient, Encoding encoding);
  struct Rows {
    uint32_t table = 0;
    std::span<const uint64_t> keys;
    uint64_t clock = 0;
    std::span<const float> gradients;  // [keys, dim]
    Encoding encoding = Encoding::kF32;
    float threshold = 0;  // above 0: rows are kept back if they are nowhere above it
  };
  struct EncodedRows {
    RowSelection selection;         // those that are sent; empty: all
    std::vector<std::byte> floats;  // of these
  };
  EncodedRows encode_rows(const Rows& rows);

 private:
  RowStore& rows_of(uint32_t table);

  const Catalog& catalog_;
  std::mutex mutex_;
  std::map<uint32_t, std::vector<float>> tensors_;
  std::map<uint32_t, RowStore> tables_;
};

}  // namespace lockstep::server
