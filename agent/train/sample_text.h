#pragma once

#include <optional>
#include <string>

#include "agent/parallel/compose.h"
#include "agent/train/data/open_data.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::train {

// The prompt and what the model writes after it. With bytes as tokens, or a table of pieces, it is
// text. Token ids that stand for nothing known become U+FFFD (with bytes '?'), and bytes of the
// prompt without a piece are dropped. With token files alone the prompt and the result are token
// ids with spaces between. A prompt without any token begins with the data's first token. All ranks
// call it; it returns nothing on those that take no part. `data` has a text.
Result<std::optional<std::string>> sample_text(parallel::Composition& model, const SampleSpec& spec,
                                               const OpenedData& data);

// Logs the text, and writes it to `sample.txt` of the folder, unless that is empty.
void keep_sample(const std::string& text, const std::string& folder);

}  // namespace lockstep::train
