#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// The function that libFuzzer calls with each input. Every target defines it; a broken guarantee
// fails a CHECK.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

inline std::string_view fuzz_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace lockstep::fuzz
