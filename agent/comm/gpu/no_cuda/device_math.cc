#include "agent/comm/gpu/device_math.h"

namespace lockstep::comm::device_math {

namespace {

Error absent() {
  return unavailable("[cuda] this build has no CUDA support");
}

}  // namespace

Status to_boolean(int, void*, DataType, const BooleanArgs&) {
  return absent();
}
Status divide(int, void*, DataType, const CommDevice::DivideArgs&) {
  return absent();
}

}  // namespace lockstep::comm::device_math
