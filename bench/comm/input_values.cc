#include "bench/comm/input_values.h"

namespace lockstep::bench {

// Mixes as lowbias hashes do, with xor-shifts and odd multipliers in turns. The arithmetic has 32
// bits and these multipliers are below 2^30, so that torch_gloo.py can use signed 64-bit integers.
int input_value(int rank, int64_t index) {
  auto x = static_cast<uint32_t>(static_cast<uint64_t>(index) * 0x9e3779b1u +
                                 static_cast<uint64_t>(rank + 1) * 0x85ebca77u);
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  x ^= x >> 12;
  x *= 0x297a2d39u;
  x ^= x >> 15;
  return static_cast<int>(x & 127);
}

int reduction_input(comm::ReduceOp op, int rank, int64_t index) {
  const int value = input_value(rank, index);
  switch (op) {
    case comm::ReduceOp::kProd:
    case comm::ReduceOp::kMin:
      return value % 8 == 0 ? 0 : 1;
    case comm::ReduceOp::kMax:
    case comm::ReduceOp::kLor:
      return value % 8 == 0 ? 1 : 0;
    case comm::ReduceOp::kSum:
    case comm::ReduceOp::kAvg:
      break;
  }
  return value % 2;
}

int reduction_result(comm::ReduceOp op, int ones, int ranks) {
  switch (op) {
    case comm::ReduceOp::kSum:
      return ones;
    case comm::ReduceOp::kProd:
    case comm::ReduceOp::kMin:
      return ones == ranks ? 1 : 0;
    case comm::ReduceOp::kMax:
    case comm::ReduceOp::kLor:
      return ones > 0 ? 1 : 0;
    case comm::ReduceOp::kAvg:
      break;
  }
  return ones / ranks;
}

}  // namespace lockstep::bench
