#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::search {

// The digests of all states that were visited, with one bit each: whether the fair way from there
// is known to reach the goal. An open hash table of eight bytes per entry.
class Visited {
 public:
  struct Entry {
    bool is_new = false;
    bool is_good = false;
  };

  Visited() : table_(kFirstSize, 0) {}

  uint64_t size() const { return size_; }
  Entry insert(uint64_t digest) {
    if (2 * (size_ + 1) > table_.size()) grow();
    uint64_t& place = find(key_of(digest));
    const bool is_new = place == 0;
    if (is_new) {
      place = key_of(digest);
      ++size_;
    }
    return {.is_new = is_new, .is_good = (place & 1) != 0};
  }
  void set_good(uint64_t digest) { find(key_of(digest)) |= 1; }

 private:
  static constexpr size_t kFirstSize = 1 << 16;

  // Not 0, which is an empty place; the lowest bit is free.
  static uint64_t key_of(uint64_t digest) { return (digest | 2) & ~uint64_t{1}; }

  uint64_t& find(uint64_t key) {
    size_t place = (key >> 2) & (table_.size() - 1);
    while (table_[place] != 0 && (table_[place] & ~uint64_t{1}) != key) {
      place = (place + 1) & (table_.size() - 1);
    }
    return table_[place];
  }
  void grow() {
    std::vector<uint64_t> old(2 * table_.size(), 0);
    old.swap(table_);
    for (const uint64_t entry : old) {
      if (entry != 0) find(entry & ~uint64_t{1}) = entry;
    }
  }

  std::vector<uint64_t> table_;
  uint64_t size_ = 0;
};

}  // namespace lockstep::search
