#pragma once

#include "common/metrics/exposition.h"

namespace lockstep {

// Adds this process's CPU time, resident memory and open descriptors, under the names that all
// Prometheus clients use.
void add_process_metrics(Exposition& out);

}  // namespace lockstep
