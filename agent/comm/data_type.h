#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/dtype.h"

namespace lockstep::comm {

enum class DataType : uint8_t { kF32, kBf16, kF64, kI32, kI64, kU8, kF16 };
constexpr int kDataTypes = 7;

constexpr size_t data_type_bytes(DataType type) {
  switch (type) {
    case DataType::kF32:
    case DataType::kI32:
      return 4;
    case DataType::kBf16:
    case DataType::kF16:
      return 2;
    case DataType::kF64:
    case DataType::kI64:
      return 8;
    case DataType::kU8:
      return 1;
  }
  return 0;
}
// "f32"
const char* name_of(DataType type);

// How the values of all ranks are combined, element by element.
//
//   reduction   | floats                                | integers
//   kSum, kProd | rounded (to nearest even) once a hop  | wrap around
//   kMin, kMax  | NaN if any of them is a NaN           | exact
//   kAvg        | the sum, then divided by the ranks:   | the sum as above, then divided, rounded
//               | one more rounding                     | towards zero; correct if no sum wraps
//   kLor        | 1 if any is not 0 (a NaN is not), or 0| the same
//
// bf16 and f16 values travel in their own format; each hop widens them to f32 and rounds the result
// back. A group of one returns its own values, for kLor still as 0 and 1.
enum class ReduceOp : uint8_t { kSum, kAvg, kMin, kMax, kProd, kLor };
constexpr int kReduceOps = 6;
// "SUM"
const char* name_of(ReduceOp op);

}  // namespace lockstep::comm
