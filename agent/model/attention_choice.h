#pragma once

#include <cstddef>

#include "kernels/ops/attention.h"

namespace lockstep::model {

// The attention kernels for passes of one shape; passes of other shapes use our own.
struct AttentionChoice {
  kernels::AttentionBy by = kernels::AttentionBy::kOwn;
  kernels::AttentionShape shape = {};
  size_t workspace_bytes = 0;  // dnn::prepare_attention() for the shape; 0 with kOwn
};

}  // namespace lockstep::model
