#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/tokenize/sentencepiece_model.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::cli {

// The commands of `lockstep tokenize`. They print results on stdout and progress on stderr. Errors
// are kInvalid, kNotFound or kConflict if the user can correct them. Nothing is written then.

struct ApplyOptions {
  std::string model;               // a sentencepiece model, or a folder of GPT-2's two files
  std::vector<std::string> texts;  // files and folders
  // The files to write are <output>.u16 or, for more than 65,536 pieces, <output>.u32, and
  // <output>.pieces.
  std::string output;
  std::string end;  // the piece that follows each file; empty: none
  size_t threads = 1;
};

// `is_interrupted` says whether the user wants the work to end; kUnavailable then.
Status apply_tokenizer(const ApplyOptions& options, const Clock& clock,
                       const std::function<bool()>& is_interrupted);

struct TrainOptions {
  std::vector<std::string> texts;
  std::string output;  // file of the model
  SentencepieceTraining training;
  uint64_t sample_bytes = 0;  // of text at most
};

Status train_tokenizer(const TrainOptions& options, const Clock& clock);

}  // namespace lockstep::cli
