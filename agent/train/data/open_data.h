#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "agent/train/data/sample_source.h"
#include "agent/train/data/token_source.h"
#include "common/api/training_job.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"
#include "common/text/piece_table.h"

namespace lockstep::train {

// A job's data as samples of its model.
struct OpenedData {
  std::unique_ptr<TokenSource> text;  // null for families without tokens
  std::optional<PieceTable> pieces;   // of the text, if it has one
  int64_t validation_begin = 0;       // first token that is held back; text->count() if none is
  std::unique_ptr<SampleSource> samples;
};

// Opens the data of spec.train.data. Reads headers, and the table of pieces. Errors blame the data,
// and name the path, or the configuration.
Result<OpenedData> open_data(const DataSpec& data, const ModelDesign& design);

}  // namespace lockstep::train
