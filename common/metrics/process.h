#pragma once

#include "common/metrics/exposition.h"

namespace lockstep {

// This process's own CPU time, resident memory and descriptors, under the names that all clients of
// Prometheus use.
void add_process_metrics(Exposition& out);

}  // namespace lockstep
