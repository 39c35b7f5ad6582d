#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep::server {

// From the hash of a key to the number of its row: open addressing with linear probing, in 256
// parts by the hash's first byte. A part grows alone, to 5/4, so that an insertion waits for the
// move of 1/256 of the entries at most.
//
// A slot has 5 bytes: a row number, and a tag, which is a byte of the hash. The load of a part is
// at most 7/8, and above 0.69 once it has grown beyond its first 16 slots. So an entry costs 5.7
// to 7.2 bytes. Keys are in the rows, so that they need no memory here: callers say what a row's
// hash is.
//
// Single-threaded.
class RowIndex {
 public:
  // Returns the row with this hash for which `is_row(row)` holds.
  template <class IsRow>
  std::optional<uint32_t> find(uint64_t hash, const IsRow& is_row) const;
  // Fetches the memory in which a search for the hash begins.
  void prefetch(uint64_t hash) const {
    const Part& part = part_of(hash);
    if (part.slots == 0) return;
    __builtin_prefetch(&part.tags[home(part, hash)]);
    __builtin_prefetch(&part.rows[home(part, hash)]);
  }
  // Returns a row that has probably this hash, the one that a search would look at first.
  std::optional<uint32_t> guess(uint64_t hash) const {
    return find(hash, [](uint32_t) { return true; });
  }
  // Adds a row that is not there. `hash_of(row)` returns the hash of a row that is.
  template <class HashOf>
  void insert(uint64_t hash, uint32_t row, const HashOf& hash_of);
  // Removes a row that is there; `hash` is its own.
  template <class HashOf>
  void erase(uint64_t hash, uint32_t row, const HashOf& hash_of);

  // Calls `use(row)` with the rows whose hashes begin with this byte.
  template <class Use>
  void visit_part(uint32_t part, const Use& use) const {
    for (size_t slot = 0; slot < parts_[part].slots; ++slot) {
      if (parts_[part].tags[slot] != 0) use(parts_[part].rows[slot]);
    }
  }

  // Memory of the slots.
  size_t bytes() const;

 private:
  static constexpr size_t kFirstSlots = 16;
  struct Part {
    size_t slots = 0;
    size_t used = 0;
    std::unique_ptr<uint8_t[]> tags;  // 0: the slot is empty
    std::unique_ptr<uint32_t[]> rows;
  };

  static uint8_t tag_of(uint64_t hash) {
    const auto low = static_cast<uint8_t>(hash);
    return low == 0 ? 1 : low;
  }
  Part& part_of(uint64_t hash) { return parts_[hash >> 56]; }
  const Part& part_of(uint64_t hash) const { return parts_[hash >> 56]; }
  // Returns the slot where the search for a hash begins.
  static size_t home(const Part& part, uint64_t hash) {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash << 8) * part.slots) >> 64);
  }
  static size_t after(const Part& part, size_t slot) {
    return slot + 1 == part.slots ? 0 : slot + 1;
  }
  static Part empty_part(size_t slots);
  static void put(Part& part, uint64_t hash, uint32_t row);
  template <class HashOf>
  static void grow(Part& part, const HashOf& hash_of);

  std::array<Part, 256> parts_;
};

template <class IsRow>
std::optional<uint32_t> RowIndex::find(uint64_t hash, const IsRow& is_row) const {
  const Part& part = part_of(hash);
  if (part.slots == 0) return {};
  const uint8_t tag = tag_of(hash);
  for (size_t slot = home(part, hash); part.tags[slot] != 0; slot = after(part, slot)) {
    if (part.tags[slot] == tag && is_row(part.rows[slot])) return part.rows[slot];
  }
  return {};
}

template <class HashOf>
void RowIndex::insert(uint64_t hash, uint32_t row, const HashOf& hash_of) {
  Part& part = part_of(hash);
  if ((part.used + 1) * 8 > part.slots * 7) grow(part, hash_of);
  put(part, hash, row);
}

template <class HashOf>
void RowIndex::grow(Part& part, const HashOf& hash_of) {
  Part larger = empty_part(part.slots == 0 ? kFirstSlots : part.slots + part.slots / 4);
  for (size_t slot = 0; slot < part.slots; ++slot) {
    if (part.tags[slot] != 0) put(larger, hash_of(part.rows[slot]), part.rows[slot]);
  }
  part = std::move(larger);
}

// Moves later entries of the run up, so that no search meets a hole before its entry. Source:
// Knuth, "The Art of Computer Programming", vol. 3, 6.4, Algorithm R.
template <class HashOf>
void RowIndex::erase(uint64_t hash, uint32_t row, const HashOf& hash_of) {
  Part& part = part_of(hash);
  size_t hole = home(part, hash);
  while (part.rows[hole] != row || part.tags[hole] == 0) hole = after(part, hole);
  for (size_t slot = after(part, hole); part.tags[slot] != 0; slot = after(part, slot)) {
    const size_t wanted = home(part, hash_of(part.rows[slot]));
    const bool stays =
        hole <= slot ? (hole < wanted && wanted <= slot) : (hole < wanted || wanted <= slot);
    if (stays) continue;
    part.tags[hole] = part.tags[slot];
    part.rows[hole] = part.rows[slot];
    hole = slot;
  }
  part.tags[hole] = 0;
  --part.used;
}

}  // namespace lockstep::server
