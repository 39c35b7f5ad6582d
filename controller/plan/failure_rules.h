#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/api/training_job.h"

namespace lockstep {

// The index of the first rule that speaks of the failure; nullopt: none does, and what follows is
// what follows any failure.
std::optional<size_t> rule_for(const std::vector<FailureRule>& rules, const FailureStatus& failure);

}  // namespace lockstep
