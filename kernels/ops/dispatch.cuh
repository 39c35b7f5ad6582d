#pragma once

#include <array>

#include "kernels/device/cuda/values.cuh"

namespace lockstep::cuda {

// Rows that a kernel goes over with packs: their width (of dense rows; what comes after a row's
// last pack is not the kernel's), and where they begin.
struct PackedRows {
  DType dtype = DType::kF32;
  int64_t width = 0;  // 0: one row, of which the kernel takes the end one by one
  std::array<const void*, 6> begins = {};
};

inline bool fills_packs(const PackedRows& rows) {
  if (rows.width % static_cast<int64_t>(16 / dtype_bytes(rows.dtype)) != 0) return false;
  for (const void* begin : rows.begins) {
    if (reinterpret_cast<uintptr_t>(begin) % 16 != 0) return false;
  }
  return true;
}

// Calls body(Pack<T, N>) with the type of the dtype and N elements in 16 bytes, or 1 where rows
// don't begin and end at multiples of 16 bytes.
template <class Body>
void dispatch(const PackedRows& rows, Body body) {
  const bool wide = fills_packs(rows);
  if (rows.dtype == DType::kF32) {
    wide ? body(Pack<float, 4>{}) : body(Pack<float, 1>{});
  } else {
    wide ? body(Pack<Bf16, 8>{}) : body(Pack<Bf16, 1>{});
  }
}

// The elements as T, which is their dtype (CHECK); null stays null.
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

}  // namespace lockstep::cuda
