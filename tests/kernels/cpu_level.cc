// cpu_level: prints the level of instructions in effect ("avx2"), as LOCKSTEP_MAX_CPU_ISA caps it.
#include <cstdio>
#include <string>

#include "tests/kernels/cpu_levels.h"

int main() {
  const lockstep::Result<lockstep::kernels::CpuLevel>& cap = lockstep::kernels::cpu_level_cap();
  if (!cap.ok()) {
    std::fprintf(stderr, "%s\n", cap.error().message.c_str());
    return 2;
  }
  std::printf(
      "%s\n",
      std::string(lockstep::kernels::cpu_level_name(lockstep::kernels::cpu_level())).c_str());
  return 0;
}
