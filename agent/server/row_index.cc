#include "agent/server/row_index.h"

#include <utility>

namespace lockstep::server {

RowIndex::Part RowIndex::empty_part(size_t slots) {
  Part part;
  part.slots = slots;
  part.tags = std::make_unique<uint8_t[]>(slots);
  part.rows = std::make_unique_for_overwrite<uint32_t[]>(slots);
  return part;
}

void RowIndex::put(Part& part, uint64_t hash, uint32_t row) {
  size_t slot = home(part, hash);
  while (part.tags[slot] != 0) slot = after(part, slot);
  part.tags[slot] = tag_of(hash);
  part.rows[slot] = row;
  ++part.used;
}

size_t RowIndex::bytes() const {
  size_t slots = 0;
  for (const Part& part : parts_) slots += part.slots;
  return slots * (sizeof(uint8_t) + sizeof(uint32_t));
}

}  // namespace lockstep::server
