#pragma once

#include <memory>

#include "tests/agent/comm/gpu/fake_device.h"

namespace lockstep::test {

// A program that links fake_cuda before our libraries has kFakeGpus fake CUDA devices. Stream,
// Event and Buffer of kernels/device use them, and a Stream's handle is a FakeStream. Streams run
// on threads of their own, so only events order work between them.
inline constexpr int kFakeGpus = 4;
std::shared_ptr<FakeDevice> fake_gpu(int index);

}  // namespace lockstep::test
