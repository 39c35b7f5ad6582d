#include "kernels/device/host_pin.h"

#include "kernels/device/cuda_api.h"

namespace lockstep::kernels {

Result<HostPin> HostPin::lock(Device device, const Workspace& memory, std::string_view by) {
  HostPin pin;
  if (device.type == DeviceType::kCpu || memory.bytes == 0) return pin;
  TRY(cuda_api::pin(device.index, memory, by));
  pin.locked_.reset(memory.data);
  return pin;
}

void HostPin::Unlock::operator()(void* data) const {
  cuda_api::unpin(data);
}

}  // namespace lockstep::kernels
