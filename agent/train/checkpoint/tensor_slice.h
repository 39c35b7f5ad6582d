#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/layout/tensor_box.h"

namespace lockstep::train {

// A rectangle of a logical tensor, as a tensor of a checkpoint's file. A whole tensor has its own
// name and shape there. Another rectangle of a matrix is named `NAME[r0:r1,c0:c1]` and has the
// shape [r1 - r0, c1 - c0]; a run of a vector is named `NAME[b:e]` and has the shape [e - b].
struct TensorSlice {
  std::string tensor;
  int rank = 1;  // dims of the logical tensor: 1 or 2
  TensorBox box;

  std::vector<int64_t> shape() const;
  bool operator==(const TensorSlice&) const = default;
};

// `shape` is that of the logical tensor.
std::string slice_name(const TensorSlice& slice, const std::vector<int64_t>& shape);

// The slice that a file's tensor is, by its name and its shape there. Nothing if they do not match,
// or if it has neither one nor two dims.
std::optional<TensorSlice> parse_slice(std::string_view name, const std::vector<int64_t>& shape);

}  // namespace lockstep::train
