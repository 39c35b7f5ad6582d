#include "agent/train/device_choice.h"

#include <string>

namespace lockstep::train {

Result<kernels::Device> rank_device(int64_t gpu, int gpus_seen) {
  if (gpu < 0) return kernels::Device{};
  if (gpu < gpus_seen) return kernels::Device{kernels::DeviceType::kCuda, static_cast<int>(gpu)};
  const std::string seen = gpus_seen == 0 ? "none" : "only " + std::to_string(gpus_seen);
  return not_found("[device] this rank uses GPU " + std::to_string(gpu) +
                       " (numbered from 0), but its process sees " + seen +
                       ". Check the container's limit nvidia.com/gpu (spec.gpusPerNode sets it, "
                       "podTemplate may change it), nvidia-smi in the pod, and "
                       "CUDA_VISIBLE_DEVICES",
                   Blame::kDevice);
}

Result<kernels::Device> rank_device_here(int64_t gpu) {
  const int seen = kernels::device_count(kernels::DeviceType::kCuda);
  const Result<kernels::Device> device = rank_device(gpu, seen);
  if (device.ok() || seen > 0) return device;
  const Result<kernels::DeviceInfo> first = kernels::describe({kernels::DeviceType::kCuda, 0});
  if (first.ok()) return device;
  return device.error().with_message(device.error().message + ": " + first.error().message);
}

}  // namespace lockstep::train
