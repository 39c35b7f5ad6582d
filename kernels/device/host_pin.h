#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::kernels {

// Page-locks memory of the host that comes from elsewhere, such as a mapped file, so that the
// device accesses it directly, as a PinnedBuffer. For the CPU it does nothing. Move-only, owner of
// the lock and not of the memory. Synchronize the streams that use the memory before unlocking it.
class HostPin {
 public:
  HostPin() = default;
  // `data` and `bytes` are multiples of a page. kUnavailable if the memory cannot be locked; the
  // error names its purpose (`by`).
  static Result<HostPin> lock(Device device, const Workspace& memory, std::string_view by);

 private:
  struct Unlock {
    void operator()(void* data) const;
  };
  std::unique_ptr<void, Unlock> locked_;
};

}  // namespace lockstep::kernels
