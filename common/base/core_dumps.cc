#include "common/base/core_dumps.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/base/log.h"

namespace lockstep {

void forbid_core_dumps() {
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

// Dumps to a program ignore the limit, unless it is one byte. Source: core(5), and do_coredump() of
// Linux.
void forbid_core_dumps_of_readable_process() {
  const rlimit limit{1, 1};
  if (::setrlimit(RLIMIT_CORE, &limit) == 0) return;
  const int reason = errno;
  // The limit is 0 for good, which only files obey. Dumps then have no memory. Source: core(5).
  std::ofstream filter("/proc/self/coredump_filter");
  if (filter << '0' << std::flush) return;
  log_warning("core dumps cannot be forbidden", {{"reason", std::strerror(reason)}});
}

}  // namespace lockstep
