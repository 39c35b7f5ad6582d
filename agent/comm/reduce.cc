#include "agent/comm/reduce.h"

#include <bit>
#include <cmath>
#include <type_traits>

namespace lockstep {
namespace {

float widen(Bf16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}

Bf16 narrow(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  const uint32_t to_even = 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<uint16_t>((bits + to_even) >> 16)};
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};

struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return (b < a || b != b) ? b : a;
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return (b > a || b != b) ? b : a;
  }
};

template <class T, class Op>
void apply(const ReduceArgs& args, Op op) {
  auto* __restrict__ into = static_cast<T*>(args.into);
  const auto* __restrict__ from = static_cast<const T*>(args.from);
  for (size_t i = 0; i < args.count; ++i) {
    if constexpr (std::is_same_v<T, Bf16>) {
      into[i] = narrow(op(widen(into[i]), widen(from[i])));
    } else {
      into[i] = op(into[i], from[i]);
    }
  }
}

template <class Op>
void apply_by_type(DataType type, const ReduceArgs& args, Op op) {
  switch (type) {
    case DataType::kF32:
      return apply<float>(args, op);
    case DataType::kBf16:
      return apply<Bf16>(args, op);
    case DataType::kF64:
      return apply<double>(args, op);
    case DataType::kI32:
      return apply<int32_t>(args, op);
    case DataType::kI64:
      return apply<int64_t>(args, op);
    case DataType::kU8:
      return apply<uint8_t>(args, op);
  }
}

}  // namespace

void reduce(DataType type, ReduceOp op, const ReduceArgs& args) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return apply_by_type(type, args, Add{});
    case ReduceOp::kMin:
      return apply_by_type(type, args, Min{});
    case ReduceOp::kMax:
      return apply_by_type(type, args, Max{});
  }
}

void scale_average(DataType type, void* data, size_t count, int ranks) {
  if (type == DataType::kF32) {
    for (size_t i = 0; i < count; ++i) static_cast<float*>(data)[i] /= static_cast<float>(ranks);
  } else if (type == DataType::kF64) {
    for (size_t i = 0; i < count; ++i) static_cast<double*>(data)[i] /= ranks;
  } else if (type == DataType::kBf16) {
    auto* values = static_cast<Bf16*>(data);
    for (size_t i = 0; i < count; ++i) {
      values[i] = narrow(widen(values[i]) / static_cast<float>(ranks));
    }
  }
}

Status check_reduction(DataType type, ReduceOp op) {
  const bool is_float = type == DataType::kF32 || type == DataType::kBf16 || type == DataType::kF64;
  if (op == ReduceOp::kAvg && !is_float) {
    return invalid("[comm] average is for floats; sum the integers and divide them");
  }
  return {};
}

}  // namespace lockstep
