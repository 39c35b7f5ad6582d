#include "agent/train/weights/weight_index.h"

#include <algorithm>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/weights/hugging_face.h"
#include "common/base/json.h"

namespace lockstep::train {

Result<WeightIndex> parse_weight_index(std::string_view text) {
  const Result<Json> document =
      parse_json(text, {.bytes_max = kWeightIndexBytesMax, .depth_max = 4, .values_max = 400'000});
  if (!document.ok()) return corrupt(document.error().message);
  const Json* map = find_member(*document, "weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    return corrupt(
        "expected an index of safetensors files, whose weight_map has the file of each tensor");
  }
  WeightIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      return corrupt("weight_map: " + tensor.substr(0, kNameShown) +
                     ": expected the name of a file in the same folder");
    }
    index[file.get<std::string>()].insert(tensor);
  }
  if (index.size() > kWeightFilesMax) {
    return corrupt(std::to_string(index.size()) + " files, expected at most " +
                   std::to_string(kWeightFilesMax));
  }
  return index;
}

std::string format_weight_index(const WeightIndex& index, uint64_t data_bytes) {
  Json map = Json::object();
  for (const auto& [file, tensors] : index) {
    for (const std::string& tensor : tensors) map[tensor] = file;
  }
  const Json document = {{"metadata", {{"total_size", data_bytes}}}, {"weight_map", map}};
  return document.dump(2) + "\n";
}

Status IndexedFiles::add(const WeightIndex::value_type& file, const SafetensorsHeader& header) {
  const auto& [name, expected] = file;
  std::set<std::string_view> found;
  for (const TensorInfo& tensor : header.tensors) found.insert(tensor.name);
  for (const std::string& tensor : expected) {
    if (found.contains(tensor)) continue;
    return invalid("weight_map: " + tensor.substr(0, kNameShown) + " is not in " + name);
  }
  for (const TensorInfo& tensor : header.tensors) {
    if (seen_.insert(tensor.name).second) continue;
    return invalid(tensor.name.substr(0, kNameShown) + " is in two files, one of them is " + name);
  }
  return {};
}

}  // namespace lockstep::train
