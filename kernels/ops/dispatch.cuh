#pragma once

#include <array>

#include "kernels/device/cuda/values.cuh"

namespace lockstep::kernels::cuda {

// Rows that a kernel processes in packs: their width and start addresses. Rows are dense; the
// kernel does not handle a remainder after a row's last pack.
struct PackedRows {
  DType dtype = DType::kF32;
  int64_t width = 0;  // 0: a single row, whose last elements the kernel processes one by one
  std::array<const void*, 6> begins = {};
};

inline bool fills_packs(const PackedRows& rows) {
  if (rows.width % static_cast<int64_t>(16 / dtype_bytes(rows.dtype)) != 0) return false;
  for (const void* begin : rows.begins) {
    if (reinterpret_cast<uintptr_t>(begin) % 16 != 0) return false;
  }
  return true;
}

// Calls body(Pack<T, N>) with the dtype's type and the N that fills 16 bytes, or N = 1 if rows do
// not start and end at multiples of 16 bytes.
template <class Body>
void dispatch(const PackedRows& rows, Body body) {
  const bool wide = fills_packs(rows);
  if (rows.dtype == DType::kF32) {
    wide ? body(Pack<float, 4>{}) : body(Pack<float, 1>{});
  } else {
    wide ? body(Pack<Bf16, 8>{}) : body(Pack<Bf16, 1>{});
  }
}

// Returns the elements as T, which must match their dtype (CHECK); null stays null.
template <class T>
const T* elements_of(const ConstView& view) {
  CHECK(!view || dtype_bytes(view.dtype) == sizeof(T));
  return static_cast<const T*>(view.data);
}
template <class T>
T* elements_of(const View& view) {
  CHECK(!view || dtype_bytes(view.dtype) == sizeof(T));
  return static_cast<T*>(view.data);
}

}  // namespace lockstep::kernels::cuda
