#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::train {

// F32, F16 and BF16 as safetensors names them: what weights may have.
bool is_float_dtype(std::string_view dtype);

// `to[i]` = the i-th of `count` little-endian elements, exactly: every F16 and BF16 value is an F32
// one. NaNs keep their payload. `dtype` is a float dtype.
void decode_floats(std::string_view dtype, const char* from, int64_t count, float* to);

}  // namespace lockstep::train
