#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What libFuzzer calls with each input; a target defines it and trips CHECK where a promise breaks.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep {

inline std::string_view fuzz_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace lockstep
