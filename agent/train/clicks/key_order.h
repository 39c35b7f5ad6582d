#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::train {

// Finds the distinct keys of many features by a radix sort: a batch has tens of thousands, and most
// keys are hashes. Keeps its memory. One thread.
class KeyOrder {
 public:
  // keys <- those of the features, ascending, each once; slots[i] <- the index there of the key of
  // feature i. At most 2^32 - 1 features.
  void sort(std::span<const uint64_t> features, std::vector<uint64_t>& keys,
            std::vector<uint32_t>& slots);

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t feature = 0;
  };
  void sort_entries();

  std::vector<Entry> entries_;
  std::vector<Entry> others_;  // to which the entries move by their next digit
  std::vector<uint32_t> counts_;
};

}  // namespace lockstep::train
