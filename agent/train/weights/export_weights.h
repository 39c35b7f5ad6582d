#pragma once

#include <cstdint>
#include <string>

#include "agent/train/weights/checkpoint_weights.h"
#include "common/base/result.h"
#include "kernels/device/dtype.h"

namespace lockstep::train {

// The form of exported weights.
struct ExportOptions {
  WeightsKind kind = WeightsKind::kParameters;
  kernels::DType dtype = kernels::DType::kF32;  // kBf16: rounded to nearest even
  uint64_t file_bytes_max = 0;  // of each file, unless one tensor is larger; 0: no limit
};

// Describes the exported weights, for the report to the user.
struct ExportedWeights {
  std::string checkpoint;  // its folder
  int64_t step = 0;
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t files = 0;  // more than one: in a folder
};

// Writes the weights of a checkpoint as Hugging Face's GPT2LMHeadModel, LlamaForCausalLM or
// BertForMaskedLM has them (hugging_face.h; GPT-2's names with `transformer.`, a tied head not
// stored). import_weights gets the same bits back, in bf16 the rounded ones. `from` is a
// checkpoint's folder, or a folder of checkpoints, of which the newest that verifies is taken. `to`
// becomes:
// - a safetensors file, if the weights fit in one
// - else a folder with model-00001-of-0000N.safetensors, ... and model.safetensors.index.json
//
// `to` is there as a whole or not at all, and durable when this returns. At most one matrix is held
// in memory. kInvalid if `to` exists, the checkpoint's model is unknown, it has no averages, or the
// limit would make more files than an index may name; kNotFound if there is no checkpoint;
// kCorrupt, else as storage says.
Result<ExportedWeights> export_weights(const std::string& from, const std::string& to,
                                       const ExportOptions& options = {});

}  // namespace lockstep::train
