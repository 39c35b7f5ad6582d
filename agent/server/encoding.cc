#include "agent/server/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/check.h"

namespace lockstep::server {
namespace {

uint64_t blocks_of(const EncodedFloats& what) {
  return what.floats == 0 ? 0 : (what.floats - 1) / what.block + 1;
}

uint16_t to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float from_bf16(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float scale_of(std::span<const float> block) {
  float largest = 0;
  for (const float value : block) {
    if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(value));
  }
  return largest / 127.0f;
}

int8_t to_int8(float value, float scale) {
  if (!(scale > 0)) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(value / scale), -127.0f, 127.0f));
}

// Calls visit(index of the block, its first float, its length).
template <class Visit>
void for_blocks(const EncodedFloats& what, const Visit& visit) {
  for (uint64_t block = 0, at = 0; at < what.floats; ++block, at += what.block) {
    visit(block, at, std::min(what.block, what.floats - at));
  }
}

}  // namespace

uint64_t encoded_bytes(const EncodedFloats& what) {
  switch (what.encoding) {
    case Encoding::kF32:
      return what.floats * sizeof(float);
    case Encoding::kBf16:
      return what.floats * sizeof(uint16_t);
    case Encoding::kInt8:
      return blocks_of(what) * sizeof(float) + what.floats;
  }
  return 0;
}

void encode(const EncodedFloats& what, std::span<const float> values, std::span<std::byte> out) {
  CHECK(values.size() == what.floats && out.size() == encoded_bytes(what));
  switch (what.encoding) {
    case Encoding::kF32:
      if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
      return;
    case Encoding::kBf16:
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t half = to_bf16(values[i]);
        std::memcpy(out.data() + i * sizeof half, &half, sizeof half);
      }
      return;
    case Encoding::kInt8:
      break;
  }
  std::byte* const integers = out.data() + blocks_of(what) * sizeof(float);
  for_blocks(what, [&](uint64_t block, uint64_t at, uint64_t count) {
    const float scale = scale_of(values.subspan(at, count));
    std::memcpy(out.data() + block * sizeof scale, &scale, sizeof scale);
    for (uint64_t i = at; i < at + count; ++i) {
      integers[i] = static_cast<std::byte>(to_int8(values[i], scale));
    }
  });
}

void decode(const EncodedFloats& what, std::span<const std::byte> bytes, std::span<float> values) {
  CHECK(values.size() == what.floats && bytes.size() == encoded_bytes(what));
  switch (what.encoding) {
    case Encoding::kF32:
      if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
      return;
    case Encoding::kBf16:
      for (size_t i = 0; i < values.size(); ++i) {
        uint16_t half = 0;
        std::memcpy(&half, bytes.data() + i * sizeof half, sizeof half);
        values[i] = from_bf16(half);
      }
      return;
    case Encoding::kInt8:
      break;
  }
  const std::byte* const integers = bytes.data() + blocks_of(what) * sizeof(float);
  for_blocks(what, [&](uint64_t block, uint64_t at, uint64_t count) {
    float scale = 0;
    std::memcpy(&scale, bytes.data() + block * sizeof scale, sizeof scale);
    for (uint64_t i = at; i < at + count; ++i) {
      values[i] = static_cast<float>(static_cast<int8_t>(integers[i])) * scale;
    }
  });
}

void encode_and_keep_loss(const EncodedFloats& what, std::span<float> values,
                          std::span<std::byte> out) {
  encode(what, values, out);
  std::vector<float> sent(values.size());
  decode(what, out, sent);
  for (size_t i = 0; i < values.size(); ++i) {
    const float lost = values[i] - sent[i];
    values[i] = std::isfinite(lost) ? lost : 0.0f;
  }
}

void encode_with_feedback(const EncodedFloats& what, std::span<const float> values,
                          std::span<float> residual, std::span<std::byte> out) {
  CHECK(residual.size() == values.size());
  for (size_t i = 0; i < values.size(); ++i) residual[i] += values[i];
  encode_and_keep_loss(what, residual, out);
}

}  // namespace lockstep::server
