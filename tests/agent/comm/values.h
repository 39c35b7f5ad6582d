#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/comm/data_type.h"

namespace lockstep::test {

// An element as the plain reference computes with it: `real` of float types, `whole` of integers.
struct Value {
  double real = 0;
  int64_t whole = 0;
  bool operator==(const Value&) const = default;
};

bool is_float(DataType type);

// Elements are kept in memory as their type has them.
Value load(DataType type, const std::byte* memory, size_t index);
void store(DataType type, std::byte* memory, size_t index, const Value& value);

// What a rank gives, a pure function of all this. Integers are of any size; floats are such that
// the reduction of up to 8 of them is exact in every type, in whatever order, so that results can
// be compared bit for bit.
struct Draw {
  uint64_t seed = 0;
  int rank = 0;
  size_t index = 0;
};
Value draw(DataType type, ReduceOp op, const Draw& draw);

// The plain loop: what becomes of the values of all ranks.
Value reduced(DataType type, ReduceOp op, std::span<const Value> values);

}  // namespace lockstep::test
