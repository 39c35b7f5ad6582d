#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::test {

// What can only be tried on a GPU. `run` returns an error that says what was wrong.
struct GpuCase {
  std::string name;  // a sentence
  std::function<Status()> run;
};

// kInternal, with these words, if it does not hold.
Status expect(bool holds, const std::string& words);

// How the cases are run.
struct GpuRun {
  bool has_device = true;
  // Whether the device still does what it is told; asked after a case that failed.
  std::function<Status()> works;
};

// Runs all cases and prints a line for each as soon as it is known: "ok", "FAILED" with what was
// wrong, without a device "skipped", or "not run after a broken context": a kernel's fault can
// leave a process without its device for good, of which the cases to come would tell nothing. Last
// their numbers, which add up to the list's. The exit code: 0, 1 if any failed or was not run, or
// 77 if all were skipped.
int run_cases(const std::vector<GpuCase>& cases, const GpuRun& run);

// The same on this machine's first CUDA device, as `main` does it. The argument "--sync" has the
// driver wait for each kernel (CUDA_LAUNCH_BLOCKING), so that what a kernel did wrong is told of
// that kernel and not of a later call; 2 for any other argument. A machine with NVIDIA's driver
// whose devices can't be used fails.
int run_gpu_cases(const std::vector<GpuCase>& cases, std::span<char* const> arguments);

}  // namespace lockstep::test
