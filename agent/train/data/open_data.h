#pragma once

#include <memory>

#include "agent/train/data/sample_source.h"
#include "agent/train/data/token_source.h"
#include "common/api/training_job.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"

namespace lockstep::train {

// A job's data as samples of its model.
struct OpenedData {
  std::unique_ptr<TokenSource> text;  // null for families without tokens
  std::unique_ptr<SampleSource> samples;
};

// Opens the data of spec.train.data. Reads headers alone. Errors blame the data, and name the path,
// or the configuration.
Result<OpenedData> open_data(const DataSpec& data, const ModelDesign& design);

}  // namespace lockstep::train
