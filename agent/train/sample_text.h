#pragma once

#include <string>

#include "agent/model/gpt.h"
#include "agent/model/param_store.h"
#include "agent/train/data/token_source.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::train {

// The prompt and what the model writes after it. With bytes as tokens it is text; with token files
// the prompt and the result are token ids with spaces between, and a prompt without any begins with
// the data's first token. `memory`: as GenerateOptions has it.
Result<std::string> sample_text(model::Gpt& model, model::ParamStore& store, const SampleSpec& spec,
                                const TokenSource& source, TokenWidth width,
                                kernels::Workspace memory);

}  // namespace lockstep::train
