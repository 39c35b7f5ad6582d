#include "common/base/descriptors.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "common/base/log.h"

namespace lockstep {

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  log_warning("cannot raise the limit of open files", {{"error", std::strerror(errno)}});
}

}  // namespace lockstep
