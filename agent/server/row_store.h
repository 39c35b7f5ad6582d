#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/server/catalog.h"
#include "agent/server/row_index.h"
#include "common/base/result.h"

namespace lockstep::server {

// A sweep looks at each row within this many clocks.
constexpr uint64_t kSweepClocks = 64;

// Is kept for each row, in addition to its floats.
struct RowMeta {
  uint64_t key = 0;
  uint32_t used_at = 0;     // clock of the last use; modulo 2^32, as the next one
  uint32_t updated_at = 0;  // clock of the last update; lazy decay counts from it
  float frequency = 0;      // at used_at
  uint32_t updates = 0;
};
static_assert(sizeof(RowMeta) == 24);

// A row that is used a lot.
struct HotRow {
  uint64_t key = 0;
  float frequency = 0;

  bool operator==(const HotRow&) const = default;
};
inline bool is_hotter(const HotRow& a, const HotRow& b) {
  return a.frequency > b.frequency || (a.frequency == b.frequency && a.key < b.key);
}

// The rows of one table that one server holds: values, optimizer's states, and use.
//
// Rows are created on first use. A new row is a pure function of the seed, the table and the key,
// so any server creates the same. Values decay lazily (RowLife::decay).
//
// Memory of n rows of dimension d with k states (optim::state_kinds()):
//   n * (24 + 4 d (1 + k) + i) bytes, where i is 5.7 to 7.2 (row_index.h),
// and at most one block of 4096 rows more. For 50 million rows with d = 16 and one state that is
// 7.9 GB. The memory of expired rows is used again, not returned.
//
// Single-threaded.
class RowStore {
 public:
  struct Options {
    uint64_t seed = 0;
    uint32_t table = 0;  // index in the catalog
    uint64_t rows_max = uint64_t{1} << 31;
  };
  RowStore(const TableSpec& spec, const Options& options);

  // Counts a use of each key at clock `now`, and creates missing rows; at most one use of a key a
  // call. kUnavailable, with nothing changed, if there would be more than rows_max rows.
  Status use(std::span<const uint64_t> keys, uint64_t now);
  // Copies the values of rows that exist, decayed to clock `now`: out is [keys, dim].
  void read(std::span<const uint64_t> keys, uint64_t now, std::span<float> out) const;

  // Calls `use(i, row)` for each key, in their order, with the number of its row, or none. Rows are
  // all over the memory, so several keys are looked up at a time, and their memory arrives
  // together. `use` may create rows, but not remove any.
  template <class Use>
  void look_up(std::span<const uint64_t> keys, const Use& use) const;

  // A row that is about to be updated.
  struct Row {
    float* values = nullptr;  // [dim], decayed
    float* states = nullptr;  // [states, dim]
    uint32_t updates = 0;     // including this one
  };
  // Decays the row of the key, as look_up() has shown it, to clock `now`, and counts an update.
  // Creates the row if it has expired since its use. Rows do not move; they are valid until a
  // sweep.
  Row begin_update(uint64_t key, std::optional<uint32_t> found, uint64_t now);
  Row begin_update(uint64_t key, uint64_t now) { return begin_update(key, row_of(key), now); }

  // Looks at the next share of the rows (kSweepClocks), and removes those that have expired at
  // clock `now`. Returns their keys, valid until the next sweep.
  std::span<const uint64_t> sweep(uint64_t now);

  // Removes those of the rows that exist. Their keys are not those of a sweep.
  void expire(std::span<const uint64_t> keys);

  // Calls `use` with each row and its values and states, until it returns an error.
  using Visitor = std::function<Status(const RowMeta& meta, std::span<const float> floats)>;
  Status visit(const Visitor& use) const;
  // A row is in one of 256 parts, by a hash of its key that is the same in all stores.
  uint32_t part_of(uint64_t key) const { return static_cast<uint32_t>(hash_of(key) >> 56); }
  Status visit_part(uint32_t part, const Visitor& use) const;
  // Adds a row that visit() has shown, here or elsewhere. kCorrupt if its key has a row, or if it
  // is none; kUnavailable if there is no room.
  Status put(const RowMeta& saved, std::span<const float> values_and_states);

  uint64_t rows() const { return rows_; }
  size_t bytes() const;
  // The key's use; null if it has no row.
  const RowMeta* find(uint64_t key) const;
  // The `count` rows with the highest frequency at clock `now`, the highest first. Looks at all
  // rows.
  std::vector<HotRow> hottest(size_t count, uint64_t now) const;

 private:
  static constexpr uint32_t kBlockRows = 4096;
  struct Block {
    std::unique_ptr<RowMeta[]> metas;
    std::unique_ptr<float[]> floats;
  };

  uint64_t hash_of(uint64_t key) const;
  RowMeta& meta(uint32_t row) const { return blocks_[row / kBlockRows].metas[row % kBlockRows]; }
  float* floats(uint32_t row) const {
    return &blocks_[row / kBlockRows].floats[size_t{row % kBlockRows} * row_floats_];
  }
  std::optional<uint32_t> row_of(uint64_t key) const;
  uint32_t create(uint64_t key, uint64_t now);
  uint32_t take_row();
  void remove(uint32_t row);
  float frequency_at(const RowMeta& meta, uint64_t now) const;
  float decay_since(const RowMeta& meta, uint64_t now) const;
  bool has_expired(const RowMeta& meta, uint64_t now) const;

  TableSpec spec_;
  Options options_;
  size_t row_floats_ = 0;  // values and states
  RowIndex index_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_rows_;
  uint32_t taken_rows_ = 0;  // of the blocks, also those that are free again
  uint64_t rows_ = 0;
  uint32_t swept_to_ = 0;
  std::vector<uint64_t> expired_;
};

template <class Use>
void RowStore::look_up(std::span<const uint64_t> keys, const Use& use) const {
  constexpr size_t kAtATime = 16;
  uint64_t hashes[kAtATime];
  std::optional<uint32_t> guesses[kAtATime];
  for (size_t first = 0; first < keys.size(); first += kAtATime) {
    const size_t count = std::min(kAtATime, keys.size() - first);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_of(keys[first + i]);
      index_.prefetch(hashes[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      guesses[i] = index_.guess(hashes[i]);
      if (!guesses[i]) continue;
      __builtin_prefetch(&meta(*guesses[i]));
      __builtin_prefetch(floats(*guesses[i]));
    }
    for (size_t i = 0; i < count; ++i) {
      const uint64_t key = keys[first + i];
      const bool is_right = guesses[i] && meta(*guesses[i]).key == key;
      use(first + i, is_right ? guesses[i] : index_.find(hashes[i], [&](uint32_t row) {
        return meta(row).key == key;
      }));
    }
  }
}

}  // namespace lockstep::server
