#include "kernels/device/launch_shape.h"

#include <string>

namespace lockstep::kernels {

Status check_launchable(const LaunchShape& shape) {
  if (is_launchable(shape)) return {};
  const Extent& blocks = shape.blocks;
  return invalid("[launch] " + std::string(shape.name) + ": no GPU can launch " +
                 std::to_string(blocks.x) + " x " + std::to_string(blocks.y) + " x " +
                 std::to_string(blocks.z) + " blocks of " + std::to_string(shape.threads) +
                 " threads with " + std::to_string(shape.shared_bytes) + " bytes of shared memory");
}

}  // namespace lockstep::kernels
