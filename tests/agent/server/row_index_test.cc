// The table from hashes to rows, against a model.
#include "agent/server/row_index.h"

#include <gtest/gtest.h>

#include <unordered_map>
#include <vector>

#include "common/base/random.h"

namespace lockstep::server {
namespace {

// Rows with hashes of few different values, so that they collide in parts, slots and tags.
class Model {
 public:
  explicit Model(uint64_t hash_bits) : mask_((uint64_t{1} << hash_bits) - 1) {}

  uint64_t hash(uint32_t row) const {
    return (row * 0x9E3779B97F4A7C15u & mask_) * 0x0101000001000001u;
  }
  void insert(uint32_t row) {
    index_.insert(hash(row), row, [&](uint32_t other) { return hash(other); });
    rows_[row] = true;
  }
  void erase(uint32_t row) {
    index_.erase(hash(row), row, [&](uint32_t other) { return hash(other); });
    rows_.erase(row);
  }
  bool has(uint32_t row) const { return rows_.contains(row); }
  void expect_same(uint32_t rows) const {
    for (uint32_t row = 0; row < rows; ++row) {
      const auto found = index_.find(hash(row), [&](uint32_t other) { return other == row; });
      ASSERT_EQ(found.has_value(), has(row)) << row;
    }
  }

 private:
  uint64_t mask_;
  RowIndex index_;
  std::unordered_map<uint32_t, bool> rows_;
};

TEST(RowIndex, FindsWhatIsInItWhateverCollides) {
  for (const uint64_t hash_bits : {1u, 4u, 12u, 40u}) {
    SCOPED_TRACE(hash_bits);
    Model model(hash_bits);
    Random random(hash_bits);
    constexpr uint32_t kRows = 600;
    for (int turn = 0; turn < 6000; ++turn) {
      const auto row = static_cast<uint32_t>(random.below(kRows));
      model.has(row) ? model.erase(row) : model.insert(row);
      if (turn % 500 == 0) model.expect_same(kRows);
    }
    model.expect_same(kRows);
  }
}

TEST(RowIndex, TakesTheBytesThatItSays) {
  RowIndex index;
  EXPECT_EQ(index.bytes(), 0u);
  const auto hash = [](uint32_t row) { return (row + 1) * 0x9E3779B97F4A7C15u; };
  constexpr uint32_t kRows = 1'000'000;
  for (uint32_t row = 0; row < kRows; ++row) {
    index.insert(hash(row), row, hash);
    if (row < 100'000) continue;
    const double bytes = static_cast<double>(index.bytes()) / (row + 1);
    ASSERT_GE(bytes, 5.7) << row;
    ASSERT_LE(bytes, 7.2) << row;
  }
}

}  // namespace
}  // namespace lockstep::server
