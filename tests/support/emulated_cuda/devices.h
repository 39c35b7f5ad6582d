#pragma once

#include <cstdint>
#include <functional>

#include "common/base/result.h"
#include "tests/support/emulated_cuda/emulated_device.h"

// The emulated devices of this process: one, unless a test asks for more. Thread-safe.
namespace lockstep::emulated_cuda {

// These issue on a stream. kInvalid for none, kUnavailable for one that was destroyed; what broke
// the device.
Status issue(void* stream, Work work);
// The same, and waits until it is done. What is no stream of these devices has it done at once.
Status run(void* stream, Work work);
// Work that waits for others than this device, as a collective's kernel does: in its turn it is
// called on a thread of its own, and other streams go on meanwhile. The device's memory can be
// touched by all threads until it returns.
Status issue_beside(void* stream, std::function<void()> work);

// Of all orders from now on, of every device.
void set_seed(uint64_t seed);
// 1 at first; never fewer than before.
void set_device_count(int count);
// Forgets what broke them, and what they were given; memory, streams and events stay.
void reset_devices();

int device_count();
// kNotFound where there is none of that index. It is never destroyed.
Result<EmulatedDevice*> device_at(int index);

}  // namespace lockstep::emulated_cuda
