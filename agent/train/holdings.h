#pragma once

#include "agent/parallel/compose_options.h"
#include "agent/parallel/memory_plan.h"
#include "common/api/progress_page.h"

namespace lockstep::train {

// Returns what a rank with these options and this memory holds.
Holdings holdings_of(const parallel::ComposeOptions& options, const parallel::MemoryPlan& memory);

}  // namespace lockstep::train
