#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "agent/train/checkpoint/safetensors.h"
#include "common/base/result.h"

namespace lockstep::train {

// The names of tensors by the name of the file, in the index's own folder, that has them.
using WeightIndex = std::map<std::string, std::set<std::string>>;

inline constexpr size_t kWeightIndexBytesMax = 16u << 20;
inline constexpr size_t kWeightFilesMax = 1000;

// The `weight_map` of an index as Hugging Face writes it (weight_files.h). kCorrupt.
Result<WeightIndex> parse_weight_index(std::string_view text);

// Returns the text of an index as Hugging Face writes it. `data_bytes`: of all tensors together.
std::string format_weight_index(const WeightIndex& index, uint64_t data_bytes);

// Compares an index with its files, one after the other.
class IndexedFiles {
 public:
  // kInvalid where the file lacks a tensor that the index says it has, or has one that a file
  // before had.
  Status add(const WeightIndex::value_type& file, const SafetensorsHeader& header);

 private:
  std::set<std::string> seen_;
};

}  // namespace lockstep::train
