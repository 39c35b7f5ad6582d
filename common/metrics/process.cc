#include "common/metrics/process.h"

#include <dirent.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <fstream>

namespace lockstep {
namespace {

double open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return std::nan("");
  double count = -3;  // do not count ".", ".." and the descriptor of this reader
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  if (!(file >> total >> resident)) return std::nan("");
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  timespec time = {};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return std::nan("");
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

void add_process_metrics(Exposition& out) {
  using Type = Exposition::Type;
  out.single("process_cpu_seconds_total", "CPU seconds of this process, without its children",
             Type::kCounter, cpu_seconds());
  out.single("process_resident_memory_bytes",
             "Resident memory of this process, without its children", Type::kGauge,
             resident_bytes());
  out.single("process_open_fds", "Open file descriptors of this process", Type::kGauge,
             open_descriptors());
}

}  // namespace lockstep
