#include "agent/train/clicks/key_order.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace lockstep::train {
namespace {

constexpr int kDigitBits = 11;
constexpr int kDigits = (64 + kDigitBits - 1) / kDigitBits;
constexpr size_t kDigitValues = size_t{1} << kDigitBits;
// Below it, the digits' counts cost more than comparing.
constexpr size_t kRadixMin = 1024;

size_t digit_of(uint64_t key, int digit) {
  return static_cast<size_t>(key >> (digit * kDigitBits)) % kDigitValues;
}

}  // namespace

// From the lowest digit to the highest one; each pass keeps the order of the one before. A digit
// that all keys share needs none.
void KeyOrder::sort_entries() {
  if (entries_.size() < kRadixMin) {
    std::ranges::sort(entries_, {}, &Entry::key);
    return;
  }
  counts_.assign(kDigits * kDigitValues, 0);
  for (const Entry& entry : entries_) {
    for (int digit = 0; digit < kDigits; ++digit) {
      ++counts_[static_cast<size_t>(digit) * kDigitValues + digit_of(entry.key, digit)];
    }
  }
  others_.resize(entries_.size());
  for (int digit = 0; digit < kDigits; ++digit) {
    uint32_t* const places = counts_.data() + static_cast<size_t>(digit) * kDigitValues;
    if (places[digit_of(entries_.front().key, digit)] == entries_.size()) continue;
    uint32_t sum = 0;
    for (size_t value = 0; value < kDigitValues; ++value) {
      sum += std::exchange(places[value], sum);
    }
    for (const Entry& entry : entries_) others_[places[digit_of(entry.key, digit)]++] = entry;
    entries_.swap(others_);
  }
}

void KeyOrder::sort(std::span<const uint64_t> features, std::vector<uint64_t>& keys,
                    std::vector<uint32_t>& slots) {
  CHECK(features.size() <= UINT32_MAX);
  entries_.resize(features.size());
  for (size_t i = 0; i < features.size(); ++i) {
    entries_[i] = {.key = features[i], .feature = static_cast<uint32_t>(i)};
  }
  sort_entries();
  keys.clear();
  slots.resize(features.size());
  for (const Entry& entry : entries_) {
    if (keys.empty() || keys.back() != entry.key) keys.push_back(entry.key);
    slots[entry.feature] = static_cast<uint32_t>(keys.size() - 1);
  }
}

}  // namespace lockstep::train
