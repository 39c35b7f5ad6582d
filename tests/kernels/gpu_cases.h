#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::test {

// A case that needs a real GPU. `run` returns an error that says what was wrong.
struct GpuCase {
  std::string name;  // a sentence
  std::function<Status()> run;
};

// kInternal, with these words, if `holds` is false.
Status expect(bool holds, const std::string& words);

// How to run the cases.
struct GpuRun {
  bool has_device = true;
  // Checks that the device still works; called after a failed case.
  std::function<Status()> works;
};

// Runs all cases and prints a line for each as soon as it ends: "ok", "FAILED" with the error,
// "skipped" without a device, or "not run after a broken context". A kernel's fault can make the
// device unusable for the rest of the process, so later cases would tell nothing. Finally prints
// the totals, which add up to the number of cases. Returns the exit code: 0; 1 if any case failed
// or was not run; 77 if all were skipped.
int run_cases(std::span<const GpuCase> cases, const GpuRun& run);

// Runs the cases on this machine's first CUDA device, for `main`. Arguments:
// - "--sync" makes the driver wait for each kernel (CUDA_LAUNCH_BLOCKING), so that an error is
//   reported for the kernel that caused it and not for a later call.
// - "--skip N" leaves out the first N cases; a new process can so go on after a broken context.
// Returns 2 for any other argument, and 1 if NVIDIA's driver is installed but no device can be
// used.
int run_gpu_cases(std::span<const GpuCase> cases, std::span<char* const> arguments);

// Returns the exit code of a program that needs a CUDA device: 0 if there is one; 77 without; 1,
// and prints why, if NVIDIA's driver is installed but no device can be used.
int code_without_gpu();

}  // namespace lockstep::test
