#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep {

// What a state belongs to beside its tensors, as text by the field's path in the job: what the
// tensors mean (the model), the order that the position is one in (the data), what the moments are
// averages over (the optimizer), and what the copies for products are made of them. A state that
// goes on under other ones would be neither run.
//
// What only the steps to come depend on may change: steps, batch, learning rate and schedule,
// epsilon, weight decay, clipping, recomputation, buckets, the world and its devices.
using RunSettings = std::map<std::string, std::string>;

// `tokens`: of all of the data.
RunSettings run_settings(const TrainSpec& train, int64_t tokens);

// kInvalid where a setting is not what it was in the checkpoint: its path and both values, of each.
// What either does not have (versions differ) is not compared.
Status check_settings(const RunSettings& job, const RunSettings& stored,
                      const std::string& checkpoint);

}  // namespace lockstep
