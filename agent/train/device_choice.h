#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::train {

// The device that a rank computes on: `gpu` as WorkerConfig has it, of those that this process
// sees, in its numbering (CUDA_VISIBLE_DEVICES hides some and renumbers the rest). kNotFound,
// blaming the device, where it is not among them: says how many are, what would be right, and where
// to look. Pure.
Result<kernels::Device> rank_device(int64_t gpu, int gpus_seen);

// The same of this machine; where it sees none, with what CUDA says about that.
Result<kernels::Device> rank_device_here(int64_t gpu);

}  // namespace lockstep::train
