#pragma once

#include <memory>

#include "tests/agent/comm/gpu/fake_device.h"

namespace lockstep::test {

// A program that links fake_cuda before our libraries has kFakeGpus CUDA devices that are fakes:
// Stream, Event and Buffer of kernels/device are of theirs, and a Stream's handle is a FakeStream.
// So what runs between streams is in no order but that of events, on threads of its own.
inline constexpr int kFakeGpus = 4;
std::shared_ptr<FakeDevice> fake_gpu(int index);

}  // namespace lockstep::test
