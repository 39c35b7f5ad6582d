#pragma once

#include <functional>
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

// Runs all cases and prints a line for each: "ok", "FAILED" with what was wrong, or, on a machine
// without a CUDA device, "skipped"; last their numbers, which add up to the list's. The exit code:
// 0, 1, or 77 if all were skipped. A machine with NVIDIA's driver whose devices can't be used
// fails.
int run_gpu_cases(const std::vector<GpuCase>& cases);

}  // namespace lockstep::test
