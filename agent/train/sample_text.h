#pragma once

#include <optional>
#include <string>

#include "agent/parallel/compose.h"
#include "agent/train/data/token_source.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::train {

// The prompt and what the model writes after it. With bytes as tokens it is text; with token files
// the prompt and the result are token ids with spaces between, and a prompt without any begins with
// the data's first token. All ranks call it; it returns nothing on those that take no part.
Result<std::optional<std::string>> sample_text(parallel::Composition& model, const SampleSpec& spec,
                                               const TokenSource& source, TokenWidth width);

}  // namespace lockstep::train
