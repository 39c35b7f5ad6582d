#include "common/base/base64.h"

#include <cstdint>

namespace lockstep {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

Result<std::string> base64_decode(std::string_view text) {
  auto refused = [] { return invalid("[base64] expected whole groups of four characters"); };
  if (text.size() % 4 != 0) return refused();
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t group = 0;
    size_t padding = 0;
    for (size_t k = 0; k < 4; ++k) {
      char c = text[i + k];
      size_t value = kAlphabet.find(c);
      if (c == '=' && i + 4 == text.size() && k >= 2) {
        ++padding;
        value = 0;
      } else if (value == std::string_view::npos || padding > 0) {
        return refused();
      }
      group = group << 6 | static_cast<uint32_t>(value);
    }
    for (size_t k = 0; k + padding < 3; ++k)
      bytes += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return bytes;
}

}  // namespace lockstep
