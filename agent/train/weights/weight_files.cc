#include "agent/train/weights/weight_files.h"

#include "agent/train/weights/weight_index.h"
#include "common/base/check.h"

namespace lockstep::train {

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
  TRY_ASSIGN(const std::string text, read_small_file(path, kWeightIndexBytesMax));
  const Result<WeightIndex> index = parse_weight_index(text);
  if (!index.ok()) return corrupt("[weights] " + path + ": " + index.error().message);
  const std::string folder = path.substr(0, path.rfind('/') + 1);  // empty where there is none
  IndexedFiles files;
  for (const auto& file : *index) {
    TRY(weights.add(folder + file.first));
    const Status agrees = files.add(file, weights.files_.back().header());
    if (!agrees.ok()) {
      return agrees.error().with_message(path + ": " + agrees.error().message);
    }
  }
  return weights;
}

const TensorFile& WeightFiles::file_of(const TensorInfo& tensor) const {
  const auto index = static_cast<size_t>(&tensor - header_.tensors.data());
  CHECK(index < file_index_.size());
  return files_[file_index_[index]];
}

}  // namespace lockstep::train
