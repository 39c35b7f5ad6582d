#pragma once

#include <cstdint>

namespace lockstep {

inline constexpr int64_t kActivationAlign = 256;  // alignment of every place, in bytes

// Allocates consecutive places of an arena of activations, as byte offsets.
class BumpAllocator {
 public:
  explicit BumpAllocator(int64_t value_bytes) : value_bytes_(value_bytes) {}

  int64_t values(int64_t count) { return take(count * value_bytes_); }
  int64_t floats(int64_t count) { return take(count * int64_t{4}); }
  int64_t bytes() const { return next_; }

 private:
  int64_t take(int64_t bytes) {
    const int64_t offset = next_;
    next_ = (next_ + bytes + kActivationAlign - 1) / kActivationAlign * kActivationAlign;
    return offset;
  }

  int64_t value_bytes_;
  int64_t next_ = 0;
};

}  // namespace lockstep
