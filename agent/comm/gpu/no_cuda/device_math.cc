#include "agent/comm/gpu/device_math.h"

namespace lockstep::device_math {

namespace {

Error absent() {
  return unavailable("[cuda] this build has no CUDA support");
}

}  // namespace

Status truth(int, void*, DataType, const TruthArgs&) {
  return absent();
}
Status divide(int, void*, DataType, const CommDevice::DivideArgs&) {
  return absent();
}

}  // namespace lockstep::device_math
