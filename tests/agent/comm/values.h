#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/comm/data_type.h"

namespace lockstep::test {

// An element in the plain reference's arithmetic: `real` for float types, `whole` for integers.
struct Value {
  double real = 0;
  int64_t whole = 0;
  bool operator==(const Value&) const = default;
};

bool is_float(comm::DataType type);

// In memory, elements have the format of their type.
Value load(comm::DataType type, const std::byte* memory, size_t index);
void store(comm::DataType type, std::byte* memory, size_t index, const Value& value);

// Returns what a rank contributes, a pure function of these arguments. Integers have any size.
// Floats are chosen so that reducing up to 8 of them is exact in every type and in any order, so
// that results can be compared bit by bit.
struct Draw {
  uint64_t seed = 0;
  int rank = 0;
  size_t index = 0;
};
Value draw(comm::DataType type, comm::ReduceOp op, const Draw& draw);

// The plain loop: reduces the values of all ranks.
Value reduced(comm::DataType type, comm::ReduceOp op, std::span<const Value> values);

}  // namespace lockstep::test
