#include "agent/comm/reduce.h"

#include <bit>
#include <cstdint>
#include <type_traits>

namespace lockstep::comm {
namespace {

// How elements are stored, and the type for arithmetic.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
};

struct Brain {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) { return std::bit_cast<float>(uint32_t{stored} << 16); }
  static Stored store(Value value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
};

// IEEE 754 binary16, without branches so that it vectorises.
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) {
    const uint32_t sign = uint32_t{stored & 0x8000u} << 16;
    const uint32_t magnitude = stored & 0x7fffu;
    const auto tiny = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) *
                                              0x1p-24f);  // a subnormal counts in units of 2^-24
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const uint32_t special = (magnitude << 13) | 0x7f800000u;
    const uint32_t finite = magnitude < 0x400u ? tiny : normal;
    return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
  }
  static Stored store(Value value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    // The sum's last bit is worth 2^-24, as a subnormal's is, so the addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const uint32_t tiny = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    const uint32_t finite = magnitude < 0x38800000u ? tiny : normal;
    const uint32_t special = magnitude > 0x7f800000u ? nan : 0x7c00u;
    // From 65520 on, values round to infinity.
    return static_cast<uint16_t>(sign | (magnitude >= 0x477ff000u ? special : finite));
  }
};

// Integers narrower than int would be promoted, and overflow where they should wrap around.
template <class T, class Op>
T wrapping(T a, T b, Op op) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    return static_cast<T>(op(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return op(a, b);
  }
}

template <ReduceOp kOp, class T>
T combine(T a, T b) {
  if constexpr (kOp == ReduceOp::kSum) {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  } else if constexpr (kOp == ReduceOp::kProd) {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  } else if constexpr (kOp == ReduceOp::kMin) {
    return (b < a || b != b) ? b : a;
  } else if constexpr (kOp == ReduceOp::kMax) {
    return (b > a || b != b) ? b : a;
  } else {
    return static_cast<T>((a != T{0}) | (b != T{0}));
  }
}

template <class Format, ReduceOp kOp>
void apply(const ReduceArgs& args) {
  using Stored = typename Format::Stored;
  auto* into = static_cast<Stored*>(args.into);
  const auto* a = static_cast<const Stored*>(args.a);
  const auto* b = static_cast<const Stored*>(args.b);
// No element depends on another one's result, even if `into` is `a` or `b`.
#pragma GCC ivdep
  for (size_t i = 0; i < args.count; ++i) {
    into[i] = Format::store(combine<kOp>(Format::load(a[i]), Format::load(b[i])));
  }
}

template <class Format>
void apply_op(ReduceOp op, const ReduceArgs& args) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return apply<Format, ReduceOp::kSum>(args);
    case ReduceOp::kMin:
      return apply<Format, ReduceOp::kMin>(args);
    case ReduceOp::kMax:
      return apply<Format, ReduceOp::kMax>(args);
    case ReduceOp::kProd:
      return apply<Format, ReduceOp::kProd>(args);
    case ReduceOp::kLor:
      return apply<Format, ReduceOp::kLor>(args);
  }
}

template <class Format>
void divide(void* data, size_t count, int ranks) {
  auto* values = static_cast<typename Format::Stored*>(data);
  for (size_t i = 0; i < count; ++i) {
    const auto value = Format::load(values[i]);
    using Value = std::remove_cv_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, uint8_t>) {
      values[i] = static_cast<uint8_t>(value / ranks);
    } else {
      values[i] = Format::store(value / static_cast<Value>(ranks));
    }
  }
}

// Calls visit(Format()) with the type's format.
template <class Visitor>
void with_format(DataType type, Visitor visit) {
  switch (type) {
    case DataType::kF32:
      return visit(Plain<float>());
    case DataType::kBf16:
      return visit(Brain());
    case DataType::kF64:
      return visit(Plain<double>());
    case DataType::kI32:
      return visit(Plain<int32_t>());
    case DataType::kI64:
      return visit(Plain<int64_t>());
    case DataType::kU8:
      return visit(Plain<uint8_t>());
    case DataType::kF16:
      return visit(Half());
  }
}

}  // namespace

const char* name_of(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "f32";
    case DataType::kBf16:
      return "bf16";
    case DataType::kF64:
      return "f64";
    case DataType::kI32:
      return "i32";
    case DataType::kI64:
      return "i64";
    case DataType::kU8:
      return "u8";
    case DataType::kF16:
      return "f16";
  }
  return "unknown type";
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "SUM";
    case ReduceOp::kAvg:
      return "AVG";
    case ReduceOp::kMin:
      return "MIN";
    case ReduceOp::kMax:
      return "MAX";
    case ReduceOp::kProd:
      return "PROD";
    case ReduceOp::kLor:
      return "LOR";
  }
  return "unknown reduction";
}

void reduce(DataType type, ReduceOp op, const ReduceArgs& args) {
  with_format(type, [&]<class Format>(Format) { apply_op<Format>(op, args); });
}

void divide_by_ranks(DataType type, void* data, size_t count, int ranks) {
  with_format(type, [&]<class Format>(Format) { divide<Format>(data, count, ranks); });
}

}  // namespace lockstep::comm
