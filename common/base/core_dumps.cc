#include "common/base/core_dumps.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

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
  log_warning("core dumps cannot be forbidden", {{"reason", std::strerror(errno)}});
}

}  // namespace lockstep
