#pragma once

#include <cstdint>
#include <functional>

#include "common/base/result.h"
#include "tests/support/emulated_cuda/emulated_device.h"

// The emulated devices of this process: one by default; tests may add more. Thread-safe.
namespace lockstep::emulated_cuda {

// Issues work on a stream. kInvalid for a null stream, kUnavailable for a destroyed one. If the
// device is broken, returns the error that broke it.
Status issue(void* stream, Work work);
// Issues the work and waits for it. If `stream` is not a stream of these devices, runs the work
// immediately.
Status run(void* stream, Work work);
// Issues work that waits for something outside the device, like a collective's kernel. When it is
// its turn it runs on its own thread, and other streams continue meanwhile. Until it returns, all
// threads can access the device's memory.
Status issue_blocking(void* stream, std::function<void()> work);

// Sets the seed for all later orders, on every device.
void set_seed(uint64_t seed);
// Starts at 1; cannot decrease.
void set_device_count(int count);
// Clears the devices' errors and drops issued work; memory, streams and events remain.
void reset_devices();

int device_count();
// kNotFound for an index that does not exist. Devices are never destroyed.
Result<EmulatedDevice*> device_at(int index);

}  // namespace lockstep::emulated_cuda
