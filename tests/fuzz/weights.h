#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "agent/train/weights/hugging_face.h"
#include "common/base/check.h"
#include "common/base/json.h"

// For targets that read headers of weights.
namespace lockstep::fuzz {

// Returns where the tensors of the header end; 0 if unknown.
inline uint64_t data_bytes(const Json& header) {
  uint64_t end = 0;
  for (const auto& [name, tensor] : header.items()) {
    const Json* offsets = find_member(tensor, "data_offsets");
    if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2) continue;
    const Json& last = offsets->at(1);
    if (last.is_number_unsigned()) end = std::max(end, last.get<uint64_t>());
  }
  return end;
}

// CHECKs that what an import reads from a file with this header exists and is what the model needs.
inline void check_weights(const train::SafetensorsHeader& header, const ModelConfig& model) {
  const Result<train::HuggingFaceWeights> weights = train::match_hugging_face(header, model);
  if (!weights.ok()) {
    CHECK(weights.error().code == Code::kInvalid);
    return;
  }
  const std::vector<Parameter> table = parameter_table(model);
  CHECK(weights->parameters.size() == table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    uint64_t elements = 0;
    for (const train::TensorInfo* tensor : weights->parameters[i]) {
      elements += (tensor->end - tensor->begin) / (tensor->dtype == "F32" ? 4 : 2);
    }
    CHECK(elements == static_cast<uint64_t>(table[i].count()));
  }
}

inline void check_weights(const train::SafetensorsHeader& header) {
  const Result<ModelConfig> told = train::dimensions_of(header);
  CHECK(told.ok() || told.error().code == Code::kInvalid);
  ModelConfig model{.layers = 1, .width = 2, .heads = 1, .context = 1, .vocabulary = 3};
  check_weights(header, model);
  model.hidden = 1;
  for (const Family family : {Family::kLlama, Family::kBert}) {
    model.family = family;
    for (const bool tied : {true, false}) {
      model.tied = tied;
      check_weights(header, model);
    }
  }
}

}  // namespace lockstep::fuzz
