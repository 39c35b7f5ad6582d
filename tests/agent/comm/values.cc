#include "tests/agent/comm/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace lockstep::test {
namespace {

// Returns the nearest number with this many bits of fraction and an exponent of at least
// `exponent_min`.
double rounded(double value, int fraction_bits, int exponent_min) {
  if (value == 0) return value;
  const int exponent = std::max(std::ilogb(value), exponent_min);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  return std::nearbyint(value / unit) * unit;
}

double as_stored(comm::DataType type, double value) {
  if (type == comm::DataType::kBf16) return rounded(value, 7, -126);
  if (type == comm::DataType::kF16) return rounded(value, 10, -14);
  return value;
}

uint16_t f16_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const auto units = static_cast<uint16_t>(std::ldexp(magnitude, 10 - exponent));
  const auto biased = static_cast<uint16_t>((exponent + 14) << 10);
  return static_cast<uint16_t>(sign + biased + units);
}

double f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
T get(const std::byte* memory, size_t index) {
  T value;
  std::memcpy(&value, memory + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put(std::byte* memory, size_t index, T value) {
  std::memcpy(memory + index * sizeof(T), &value, sizeof(T));
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

int64_t truncated(comm::DataType type, uint64_t value) {
  if (type == comm::DataType::kI32) return static_cast<int32_t>(value);
  if (type == comm::DataType::kU8) return static_cast<uint8_t>(value);
  return static_cast<int64_t>(value);
}

Value reduced_floats(comm::DataType type, comm::ReduceOp op, std::span<const Value> values) {
  double result = values[0].real;
  if (op == comm::ReduceOp::kLor) result = result != 0 ? 1 : 0;
  for (size_t i = 1; i < values.size(); ++i) {
    const double value = values[i].real;
    if (op == comm::ReduceOp::kProd) result *= value;
    if (op == comm::ReduceOp::kSum || op == comm::ReduceOp::kAvg) result += value;
    if (op == comm::ReduceOp::kMin) result = std::min(result, value);
    if (op == comm::ReduceOp::kMax) result = std::max(result, value);
    if (op == comm::ReduceOp::kLor) result = result != 0 || value != 0 ? 1 : 0;
  }
  if (op == comm::ReduceOp::kAvg) {
    const auto ranks = static_cast<double>(values.size());
    result = type == comm::DataType::kF64
                 ? result / ranks
                 : double{static_cast<float>(result) / static_cast<float>(ranks)};
  }
  return {.real = as_stored(type, result)};
}

Value reduced_integers(comm::DataType type, comm::ReduceOp op, std::span<const Value> values) {
  int64_t result = values[0].whole;
  if (op == comm::ReduceOp::kLor) result = result != 0 ? 1 : 0;
  for (size_t i = 1; i < values.size(); ++i) {
    const int64_t value = values[i].whole;
    const auto a = static_cast<uint64_t>(result);
    const auto b = static_cast<uint64_t>(value);
    if (op == comm::ReduceOp::kProd) result = truncated(type, a * b);
    if (op == comm::ReduceOp::kSum || op == comm::ReduceOp::kAvg) result = truncated(type, a + b);
    if (op == comm::ReduceOp::kMin) result = std::min(result, value);
    if (op == comm::ReduceOp::kMax) result = std::max(result, value);
    if (op == comm::ReduceOp::kLor) result = result != 0 || value != 0 ? 1 : 0;
  }
  if (op == comm::ReduceOp::kAvg) result /= static_cast<int64_t>(values.size());
  return {.whole = result};
}

}  // namespace

bool is_float(comm::DataType type) {
  return type == comm::DataType::kF32 || type == comm::DataType::kF64 ||
         type == comm::DataType::kBf16 || type == comm::DataType::kF16;
}

Value load(comm::DataType type, const std::byte* memory, size_t index) {
  switch (type) {
    case comm::DataType::kF32:
      return {.real = double{get<float>(memory, index)}};
    case comm::DataType::kF64:
      return {.real = get<double>(memory, index)};
    case comm::DataType::kBf16:
      return {.real = double{std::bit_cast<float>(uint32_t{get<uint16_t>(memory, index)} << 16)}};
    case comm::DataType::kF16:
      return {.real = f16_value(get<uint16_t>(memory, index))};
    case comm::DataType::kI32:
      return {.whole = get<int32_t>(memory, index)};
    case comm::DataType::kI64:
      return {.whole = get<int64_t>(memory, index)};
    case comm::DataType::kU8:
      return {.whole = get<uint8_t>(memory, index)};
  }
  return {};
}

void store(comm::DataType type, std::byte* memory, size_t index, const Value& value) {
  switch (type) {
    case comm::DataType::kF32:
      return put(memory, index, static_cast<float>(value.real));
    case comm::DataType::kF64:
      return put(memory, index, value.real);
    case comm::DataType::kBf16:
      return put(
          memory, index,
          static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value.real)) >> 16));
    case comm::DataType::kF16:
      return put(memory, index, f16_bits(value.real));
    case comm::DataType::kI32:
      return put(memory, index, static_cast<int32_t>(value.whole));
    case comm::DataType::kI64:
      return put(memory, index, value.whole);
    case comm::DataType::kU8:
      return put(memory, index, static_cast<uint8_t>(value.whole));
  }
}

Value draw(comm::DataType type, comm::ReduceOp op, const Draw& draw) {
  const uint64_t bits =
      mixed(draw.seed + mixed(static_cast<uint64_t>(draw.rank) * 0x632be59bu + 1) +
            mixed(draw.index * 0x9e3779b1u + 7));
  if (op == comm::ReduceOp::kLor && bits % 5 != 0) return {};
  if (!is_float(type)) return {.whole = truncated(type, bits)};
  if (op != comm::ReduceOp::kProd) return {.real = static_cast<double>(bits % 17) - 8};
  const double magnitude = (bits & 1) != 0 ? 2 : 1;
  return {.real = (bits & 2) != 0 ? -magnitude : magnitude};
}

Value reduced(comm::DataType type, comm::ReduceOp op, std::span<const Value> values) {
  return is_float(type) ? reduced_floats(type, op, values) : reduced_integers(type, op, values);
}

}  // namespace lockstep::test
