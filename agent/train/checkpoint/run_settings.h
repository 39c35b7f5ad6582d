#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::train {

// The settings that a stored state depends on, in addition to its tensors, as text by the field's
// path in the job. They determine:
// - the meaning of the tensors (the model)
// - the order that the position refers to (the data)
// - the meaning of the optimizer's states
// - how the copies for products are derived
// Continuing a state with other settings would produce neither run.
//
// Settings that only affect future steps may change: steps, batch, learning rate and schedule,
// epsilon, Nesterov, weight decay, clipping, recomputation, buckets, the world and its devices.
using RunSettings = std::map<std::string, std::string>;

// `data_size`: SampleSource::size().
RunSettings run_settings(const TrainSpec& train, const std::string& data_size);

// kInvalid, blaming the configuration, if a setting differs from the checkpoint's, with the path
// and both values of each. Settings that either side lacks (because versions differ) are not
// compared.
Status check_settings(const RunSettings& job, const RunSettings& stored,
                      const std::string& checkpoint);

}  // namespace lockstep::train
