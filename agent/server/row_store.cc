#include "agent/server/row_store.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "kernels/ops/normal.h"
#include "kernels/ops/rounding.h"

namespace lockstep::server {
namespace {

// A free row has no updates, and this frequency.
constexpr float kFree = -1.0f;

constexpr uint32_t clock_of(uint64_t clock) {
  return static_cast<uint32_t>(clock);
}

// Clocks since `then`. Clocks of workers that are behind count 0.
uint32_t elapsed(uint32_t then, uint64_t now) {
  const uint32_t clocks = clock_of(now) - then;
  return clocks >> 31 != 0 ? 0 : clocks;
}

}  // namespace

RowStore::RowStore(const TableSpec& spec, const Options& options)
    : spec_(spec),
      options_(options),
      row_floats_(spec.dim * (1 + optim::state_kinds(spec.optimizer).size())) {
  options_.rows_max =
      std::min<uint64_t>(options.rows_max, std::numeric_limits<uint32_t>::max() - kBlockRows);
}

// Differs from the ring's hash: the keys of a server are consecutive there, and would crowd in a
// few slots.
uint64_t RowStore::hash_of(uint64_t key) const {
  return kernels::mixed_bits(key ^ 0x5DEECE66D1CE4E5Bu);
}

std::optional<uint32_t> RowStore::row_of(uint64_t key) const {
  return index_.find(hash_of(key), [&](uint32_t row) { return meta(row).key == key; });
}

uint32_t RowStore::take_row() {
  if (!free_rows_.empty()) {
    const uint32_t row = free_rows_.back();
    free_rows_.pop_back();
    return row;
  }
  if (taken_rows_ % kBlockRows == 0) {
    blocks_.push_back({std::make_unique<RowMeta[]>(kBlockRows),
                       std::make_unique_for_overwrite<float[]>(kBlockRows * row_floats_)});
  }
  return taken_rows_++;
}

uint32_t RowStore::create(uint64_t key, uint64_t now) {
  const uint32_t row = take_row();
  meta(row) = {.key = key, .used_at = clock_of(now), .updated_at = clock_of(now)};
  float* const values = floats(row);
  std::fill_n(values, row_floats_, 0.0f);
  if (spec_.deviation > 0) {
    kernels::fill_normal({.out = values,
                          .count = spec_.dim,
                          .seed = options_.seed ^ kernels::mixed_bits(options_.table),
                          .stream = key,
                          .deviation = spec_.deviation});
  }
  index_.insert(hash_of(key), row, [&](uint32_t other) { return hash_of(meta(other).key); });
  ++rows_;
  return row;
}

Status RowStore::use(std::span<const uint64_t> keys, uint64_t now) {
  if (rows_ + keys.size() > options_.rows_max) {
    const auto missing = static_cast<uint64_t>(
        std::ranges::count_if(keys, [&](uint64_t key) { return !row_of(key); }));
    if (rows_ + missing > options_.rows_max) {
      return unavailable("[server] " + spec_.name + ": expected at most " +
                         std::to_string(options_.rows_max) + " rows, got " + std::to_string(rows_) +
                         " and " + std::to_string(missing) + " new ones");
    }
  }
  look_up(keys, [&](size_t i, std::optional<uint32_t> found) {
    RowMeta& used = meta(found ? *found : create(keys[i], now));
    used.frequency = frequency_at(used, now) + 1.0f;
    if (elapsed(used.used_at, now) > 0) used.used_at = clock_of(now);
  });
  return {};
}

float RowStore::frequency_at(const RowMeta& meta, uint64_t now) const {
  if (!(spec_.life.half_life > 0)) return meta.frequency;
  const float clocks = static_cast<float>(elapsed(meta.used_at, now));
  return meta.frequency * std::exp2(-clocks / spec_.life.half_life);
}

float RowStore::decay_since(const RowMeta& meta, uint64_t now) const {
  if (spec_.life.decay == 0 || meta.updates == 0) return 1.0f;
  return static_cast<float>(std::pow(1.0 - spec_.life.decay, elapsed(meta.updated_at, now)));
}

void RowStore::read(std::span<const uint64_t> keys, uint64_t now, std::span<float> out) const {
  CHECK(out.size() == keys.size() * spec_.dim);
  float* to = out.data();
  look_up(keys, [&](size_t, std::optional<uint32_t> row) {
    CHECK(row.has_value());
    const float* const values = floats(*row);
    const float factor = decay_since(meta(*row), now);
    for (uint32_t i = 0; i < spec_.dim; ++i) to[i] = values[i] * factor;
    to += spec_.dim;
  });
}

RowStore::Row RowStore::begin_update(uint64_t key, std::optional<uint32_t> found, uint64_t now) {
  const uint32_t row = found ? *found : create(key, now);
  RowMeta& updated = meta(row);
  float* const values = floats(row);
  const float factor = decay_since(updated, now);
  for (uint32_t i = 0; i < spec_.dim; ++i) values[i] *= factor;
  if (updated.updates == 0 || elapsed(updated.updated_at, now) > 0) {
    updated.updated_at = clock_of(now);
  }
  if (updated.updates < std::numeric_limits<uint32_t>::max()) ++updated.updates;
  return {.values = values, .states = values + spec_.dim, .updates = updated.updates};
}

bool RowStore::has_expired(const RowMeta& meta, uint64_t now) const {
  if (meta.frequency == kFree) return false;
  return elapsed(meta.used_at, now) >= spec_.life.idle_max &&
         frequency_at(meta, now) < spec_.life.frequency_min;
}

void RowStore::remove(uint32_t row) {
  RowMeta& removed = meta(row);
  index_.erase(hash_of(removed.key), row, [&](uint32_t other) { return hash_of(meta(other).key); });
  expired_.push_back(removed.key);
  removed = {.frequency = kFree};
  free_rows_.push_back(row);
  --rows_;
}

std::span<const uint64_t> RowStore::sweep(uint64_t now) {
  expired_.clear();
  if (spec_.life.idle_max == 0) return expired_;
  const uint64_t share = (taken_rows_ + kSweepClocks - 1) / kSweepClocks;
  for (uint64_t i = 0; i < share; ++i) {
    if (swept_to_ >= taken_rows_) swept_to_ = 0;
    if (has_expired(meta(swept_to_), now)) remove(swept_to_);
    ++swept_to_;
  }
  return expired_;
}

void RowStore::expire(std::span<const uint64_t> keys) {
  for (const uint64_t key : keys) {
    if (const auto row = row_of(key)) remove(*row);
  }
  expired_.clear();
}

Status RowStore::visit_part(uint32_t part, const Visitor& use) const {
  Status done;
  index_.visit_part(part, [&](uint32_t row) {
    if (done.ok()) done = use(meta(row), {floats(row), row_floats_});
  });
  return done;
}

Status RowStore::visit(const Visitor& use) const {
  for (uint32_t row = 0; row < taken_rows_; ++row) {
    if (meta(row).frequency == kFree) continue;
    TRY(use(meta(row), {floats(row), row_floats_}));
  }
  return {};
}

Status RowStore::put(const RowMeta& saved, std::span<const float> values_and_states) {
  CHECK(values_and_states.size() == row_floats_);
  if (!(saved.frequency >= 0) || row_of(saved.key)) {
    return corrupt("[server] " + spec_.name + ": key " + std::to_string(saved.key) +
                   " was saved twice, or without a frequency");
  }
  const uint64_t keys[] = {saved.key};
  TRY(use(keys, 0));
  const uint32_t row = *row_of(saved.key);
  meta(row) = saved;
  std::ranges::copy(values_and_states, floats(row));
  return {};
}

size_t RowStore::bytes() const {
  const size_t block = kBlockRows * (sizeof(RowMeta) + row_floats_ * sizeof(float));
  return blocks_.size() * block + index_.bytes() + free_rows_.capacity() * sizeof(uint32_t);
}

const RowMeta* RowStore::find(uint64_t key) const {
  const auto row = row_of(key);
  return row ? &meta(*row) : nullptr;
}

// Collects them in a heap with the least hot one at the front.
std::vector<HotRow> RowStore::hottest(size_t count, uint64_t now) const {
  std::vector<HotRow> hot;
  for (uint32_t row = 0; row < taken_rows_; ++row) {
    if (meta(row).frequency == kFree) continue;
    hot.push_back({meta(row).key, frequency_at(meta(row), now)});
    std::ranges::push_heap(hot, is_hotter);
    if (hot.size() <= count) continue;
    std::ranges::pop_heap(hot, is_hotter);
    hot.pop_back();
  }
  std::ranges::sort(hot, is_hotter);
  return hot;
}

}  // namespace lockstep::server
