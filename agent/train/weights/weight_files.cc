#include "agent/train/weights/weight_files.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "agent/train/weights/hugging_face.h"
#include "common/base/check.h"
#include "common/base/json.h"

namespace lockstep {
namespace {

constexpr size_t kIndexBytesMax = 16u << 20;
constexpr size_t kFilesMax = 1000;

Error bad(const std::string& path, const std::string& what) {
  return corrupt("[weights] " + path + ": " + what);
}

// The index: names of tensors by the names of their files.
Result<std::map<std::string, std::set<std::string>>> read_index(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_small_file(path, kIndexBytesMax));
  const Result<Json> document =
      parse_json(text, {.bytes_max = kIndexBytesMax, .depth_max = 4, .values_max = 400'000});
  if (!document.ok()) return bad(path, document.error().message);
  const Json* map = find_member(*document, "weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    return bad(path, "expected an index of safetensors files, with a weight_map of each tensor's");
  }
  std::map<std::string, std::set<std::string>> tensors_of;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      return bad(path, "weight_map: " + tensor.substr(0, kNameShown) +
                           ": expected the name of a file in the same folder");
    }
    tensors_of[file.get<std::string>()].insert(tensor);
  }
  if (tensors_of.size() > kFilesMax) {
    return bad(path, std::to_string(tensors_of.size()) + " files, expected at most " +
                         std::to_string(kFilesMax));
  }
  return tensors_of;
}

}  // namespace

Status WeightFiles::add(const std::string& path) {
  TRY_ASSIGN(TensorFile file, TensorFile::open(path));
  const std::vector<TensorInfo>& tensors = file.header().tensors;
  header_.tensors.insert(header_.tensors.end(), tensors.begin(), tensors.end());
  file_index_.resize(header_.tensors.size(), files_.size());
  files_.push_back(std::move(file));
  return {};
}

Result<WeightFiles> WeightFiles::open(const std::string& path) {
  WeightFiles weights(path);
  if (!path.ends_with(".json")) {
    TRY(weights.add(path));
    return weights;
  }
  TRY_ASSIGN(const auto tensors_of, read_index(path));
  const std::string folder = path.substr(0, path.rfind('/') + 1);  // empty where there is none
  std::set<std::string> seen;
  for (const auto& [name, tensors] : tensors_of) {
    TRY(weights.add(folder + name));
    for (const std::string& tensor : tensors) {
      if (weights.files_.back().find(tensor) != nullptr) continue;
      return invalid(path + ": weight_map: " + tensor.substr(0, kNameShown) + " is not in " + name);
    }
    for (const TensorInfo& tensor : weights.files_.back().header().tensors) {
      if (seen.insert(tensor.name).second) continue;
      return invalid(path + ": " + tensor.name.substr(0, kNameShown) + " is in two files, one is " +
                     name);
    }
  }
  return weights;
}

const TensorFile& WeightFiles::file_of(const TensorInfo& tensor) const {
  const auto index = static_cast<size_t>(&tensor - header_.tensors.data());
  CHECK(index < file_index_.size());
  return files_[file_index_[index]];
}

}  // namespace lockstep
