#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/api/training_job.h"

namespace lockstep::plan {

// Returns the index of the first rule that matches the failure; nullopt if none does, so that the
// default action applies. Rules that ranks apply themselves (is_about_loss()) match no failure: one
// about a loss says that they gave up.
std::optional<size_t> rule_for(const std::vector<FailureRule>& rules, const FailureStatus& failure);

}  // namespace lockstep::plan
