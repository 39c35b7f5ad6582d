#pragma once

#include "agent/comm/gpu/comm_device.h"

// CommDevice's arithmetic on CUDA. cuda/ implements it; no_cuda/ has the same symbols, which return
// kUnavailable.
namespace lockstep::comm::device_math {

Status to_boolean(int index, void* stream, DataType type, const BooleanArgs& args);
Status divide(int index, void* stream, DataType type, const CommDevice::DivideArgs& args);

}  // namespace lockstep::comm::device_math
