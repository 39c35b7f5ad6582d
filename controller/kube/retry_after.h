#pragma once

#include <string>

#include "common/base/clock.h"

namespace lockstep::kube {

// Parses Retry-After, in seconds or as a date. At most five minutes; 0 if there is none.
Duration retry_after(const std::string& header, WallTime now);

}  // namespace lockstep::kube
