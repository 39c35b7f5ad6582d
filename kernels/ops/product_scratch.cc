#include "kernels/ops/product_scratch.h"

#include <cstddef>
#include <memory>
#include <new>

namespace lockstep::kernels {

namespace {

constexpr std::align_val_t kCacheLine{64};

struct Free {
  void operator()(float* data) const { ::operator delete(data, kCacheLine); }
};

}  // namespace

float* product_scratch(int64_t floats) {
  static thread_local std::unique_ptr<float, Free> data;
  static thread_local int64_t size = 0;
  if (floats > size) {
    data.reset(static_cast<float*>(
        ::operator new(static_cast<size_t>(floats) * sizeof(float), kCacheLine)));
    size = floats;
  }
  return data.get();
}

}  // namespace lockstep::kernels
