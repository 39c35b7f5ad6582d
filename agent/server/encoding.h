#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::server {

// How floats of a push, or of a pull's reply, are sent. Blocks are rows of a table, or runs of
// kRangeBlock elements of a range, of which the last may be shorter.
enum class Encoding : uint32_t {
  kF32 = 0,
  kBf16 = 1,  // each rounded to nearest even
  // For each block a float, the scale, which is its largest magnitude / 127; then for each float
  // an integer of 8 bits, -127 to 127, that the scale multiplies. A block with a value that is not
  // finite has the scale NaN.
  kInt8 = 2,
};
constexpr uint64_t kRangeBlock = 256;

// How a worker's transfers are sent.
struct Encodings {
  Encoding push = Encoding::kF32;
  Encoding pull = Encoding::kF32;
  float push_threshold = 0;  // ParameterClient::RowsPush::threshold
};

// Returns the encoding that `wished` stands for with blocks of this length: bf16 instead of int8
// where the scale makes the latter no smaller.
constexpr Encoding encoding_for(Encoding wished, uint64_t block) {
  return wished == Encoding::kInt8 && block <= 4 ? Encoding::kBf16 : wished;
}

// Floats in blocks of `block`.
struct EncodedFloats {
  Encoding encoding = Encoding::kF32;
  uint64_t floats = 0;
  uint64_t block = 1;
};
// Returns how many bytes they take.
uint64_t encoded_bytes(const EncodedFloats& what);
// Writes encoded_bytes() bytes to `out`.
void encode(const EncodedFloats& what, std::span<const float> values, std::span<std::byte> out);
// Reads encoded_bytes() bytes, of any value, aligned to 4.
void decode(const EncodedFloats& what, std::span<const std::byte> bytes, std::span<float> values);

// Encodes values, and replaces them by what that loses, or by 0 if that is not finite.
void encode_and_keep_loss(const EncodedFloats& what, std::span<float> values,
                          std::span<std::byte> out);
// Encodes values + residual, and keeps in `residual` what that loses, so that it is sent with the
// next values. Over many pushes nothing is lost but the last residual. A residual that is not
// finite becomes 0. Source: Seide et al., "1-bit stochastic gradient descent", Interspeech 2014.
void encode_with_feedback(const EncodedFloats& what, std::span<const float> values,
                          std::span<float> residual, std::span<std::byte> out);

}  // namespace lockstep::server
