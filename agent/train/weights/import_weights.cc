#include "agent/train/weights/import_weights.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "agent/train/weights/float_decode.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/transpose.h"
#include "agent/train/weights/weight_files.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr size_t kElementsAtOnce = 1 << 18;

// `to` = the tensor's elements from `first` on.
Status read_floats(const TensorFile& file, const TensorInfo& tensor, int64_t first,
                   std::span<float> to) {
  if (to.empty()) return {};
  TRY_ASSIGN(const int64_t count, element_count(tensor.shape));
  const auto element_bytes = (tensor.end - tensor.begin) / static_cast<uint64_t>(count);
  std::vector<char> bytes(std::min(to.size(), kElementsAtOnce) * element_bytes);
  for (size_t done = 0; done < to.size(); done += kElementsAtOnce) {
    const std::span<float> now = to.subspan(done, std::min(to.size() - done, kElementsAtOnce));
    const std::span<char> stored = std::span(bytes).first(now.size() * element_bytes);
    TRY(file.read_bytes(tensor, (static_cast<uint64_t>(first) + done) * element_bytes, stored));
    decode_floats(tensor.dtype, stored.data(), std::ssize(now), now.data());
  }
  return {};
}

// A tied head is the token embedding by construction: a file that stores it has it twice. Compares
// at most the first `count_max` values.
Status check_head(const WeightFiles& files, const HuggingFaceWeights& weights, int64_t count_max) {
  if (weights.head == nullptr) return {};
  const TensorInfo& head = *weights.head;
  const TensorInfo& tokens = *weights.parameters[kTokenEmbedding].front();
  TRY_ASSIGN(int64_t count, element_count(head.shape));
  count = std::min(count, count_max);
  std::vector<float> ours(std::min(static_cast<size_t>(count), kElementsAtOnce));
  std::vector<float> theirs(ours.size());
  for (int64_t first = 0; first < count; first += std::ssize(ours)) {
    const auto now =
        static_cast<size_t>(std::min(count - first, static_cast<int64_t>(ours.size())));
    TRY(read_floats(files.file_of(tokens), tokens, first, std::span(ours).first(now)));
    TRY(read_floats(files.file_of(head), head, first, std::span(theirs).first(now)));
    if (std::memcmp(ours.data(), theirs.data(), now * sizeof(float)) == 0) continue;
    return invalid(files.file_of(head).path() + ": " + head.name + " differs from " + tokens.name +
                   ", expected the same values, or spec.train.model.head: untied");
  }
  return {};
}

Result<HuggingFaceWeights> match(const WeightFiles& files, const ModelConfig& config) {
  Result<HuggingFaceWeights> weights = match_hugging_face(files.header(), config);
  if (weights.ok()) return weights;
  return weights.error().with_message(files.path() + ": " + weights.error().message);
}

void tell_of_unused_positions(const HuggingFaceWeights& weights, const ModelConfig& config) {
  if (config.design().has_rotary()) return;
  const int64_t positions = weights.parameters[kPositionEmbedding].front()->shape[0];
  if (positions == config.context) return;
  log_info("the weights have more positions than spec.train.model.context, the first are used",
           {{"positions", positions}, {"context", config.context}});
}

Error blamed(const Error& error) {
  return error.blaming(error.code == Code::kInvalid ? Blame::kConfig : Blame::kData);
}

}  // namespace

Result<std::unique_ptr<parallel::StateSource>> open_weights(const std::string& path,
                                                            const ModelDesign& design) {
  const ModelConfig* transformer = transformer_of(design);
  if (transformer == nullptr) {  // of a configuration that was not validated
    return invalid("spec.train.model.weights.path: expected a transformer, but the family is " +
                       std::string(family_name(design)),
                   Blame::kConfig);
  }
  Result<WeightsSource> weights = WeightsSource::open(path, *transformer);
  if (!weights.ok()) {
    const Error& error = weights.error();
    return error.with_message("spec.train.model.weights.path: " + error.message);
  }
  return std::unique_ptr<parallel::StateSource>(
      std::make_unique<WeightsSource>(std::move(*weights)));
}

uint64_t import_bytes_max(const ModelConfig& config) {
  int64_t largest = kElementsAtOnce;  // check_head() holds two runs of values
  for (const Parameter& parameter : parameter_table(config)) {
    for (const StoredTensorInfo& stored : hugging_face_tensors(parameter)) {
      if (stored.is_transposed) largest = std::max(largest, parameter.count());
    }
  }
  return (2 * static_cast<uint64_t>(largest) + kElementsAtOnce) * sizeof(float);
}

Status check_weights(const std::string& path, const ModelConfig& config) {
  TRY_ASSIGN(const WeightFiles files, WeightFiles::open(path));
  TRY_ASSIGN(const HuggingFaceWeights weights, match(files, config));
  return check_head(files, weights, kElementsAtOnce);
}

Result<WeightsSource> WeightsSource::open(const std::string& path, const ModelConfig& config) {
  Result<WeightsSource> source = open_files(path, config);
  if (!source.ok()) return blamed(source.error());
  return source;
}

Result<WeightsSource> WeightsSource::open_files(const std::string& path,
                                                const ModelConfig& config) {
  TRY_ASSIGN(WeightFiles files, WeightFiles::open(path));
  WeightsSource source(std::move(files));
  TRY_ASSIGN(const HuggingFaceWeights weights, match(source.files_, config));
  TRY(check_head(source.files_, weights, std::numeric_limits<int64_t>::max()));
  tell_of_unused_positions(weights, config);
  for (const Parameter& parameter : parameter_table(config)) {
    source.add_parts(parameter, weights.parameters[static_cast<size_t>(parameter.id)]);
  }
  return source;
}

void WeightsSource::add_parts(const Parameter& parameter,
                              const std::vector<const TensorInfo*>& tensors) {
  const int64_t columns = parameter.dims[1];
  const std::vector<StoredTensorInfo> stored = hugging_face_tensors(parameter);
  std::vector<Part>& parts = parts_.emplace_back();
  for (size_t i = 0; i < stored.size(); ++i) {
    const int64_t begin = stored[i].first_row * columns;
    parts.push_back({.tensor = tensors[i],
                     .begin = begin,
                     .end = begin + stored[i].rows * columns,
                     .is_transposed = stored[i].is_transposed});
  }
}

Status WeightsSource::read(const parallel::StateTensor& tensor, int64_t first,
                           std::span<float> to) {
  CHECK(tensor.kind == 0);
  for (const Part& part : parts_[static_cast<size_t>(tensor.parameter.id)]) {
    const int64_t begin = std::max(first, part.begin);
    const int64_t end = std::min(first + std::ssize(to), part.end);
    if (begin >= end) continue;
    const std::span<float> here =
        to.subspan(static_cast<size_t>(begin - first), static_cast<size_t>(end - begin));
    const Status read = read_part(part, begin - part.begin, here);
    if (!read.ok()) return blamed(read.error());
  }
  return {};
}

Status WeightsSource::read_part(const Part& part, int64_t first, std::span<float> to) {
  if (!part.is_transposed)
    return read_floats(files_.file_of(*part.tensor), *part.tensor, first, to);
  if (first == 0) TRY(transpose_part(part));
  std::copy_n(transposed_.begin() + first, to.size(), to.begin());
  if (first + std::ssize(to) == std::ssize(transposed_)) transposed_ = {};
  return {};
}

Status WeightsSource::transpose_part(const Part& part) {
  const MatrixSize size{.rows = part.tensor->shape[0], .columns = part.tensor->shape[1]};
  std::vector<float> stored(static_cast<size_t>(size.rows * size.columns));
  TRY(read_floats(files_.file_of(*part.tensor), *part.tensor, 0, stored));
  transposed_.resize(stored.size());
  transpose(stored.data(), size, transposed_.data());
  return {};
}

}  // namespace lockstep::train
