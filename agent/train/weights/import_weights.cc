#include "agent/train/weights/import_weights.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "agent/train/checkpoint/tensor_file.h"
#include "agent/train/weights/float_decode.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/transpose.h"

namespace lockstep {
namespace {

constexpr int64_t kElementsAtOnce = 1 << 18;

// Calls `visit(first, values)` with the tensor's elements, run by run, in order; an error of its
// ends it.
template <class Visit>
Status each_run(const TensorFile& file, const TensorInfo& tensor, Visit&& visit) {
  TRY_ASSIGN(const int64_t count, element_count(tensor.shape));
  if (count == 0) return {};
  const int64_t element_bytes = static_cast<int64_t>(tensor.end - tensor.begin) / count;
  const int64_t run = std::min(count, kElementsAtOnce);
  std::vector<char> bytes(static_cast<size_t>(run * element_bytes));
  std::vector<float> values(static_cast<size_t>(run));
  for (int64_t first = 0; first < count; first += run) {
    const int64_t now = std::min(run, count - first);
    TRY(file.read_bytes(tensor, static_cast<uint64_t>(first * element_bytes),
                        std::span(bytes).first(static_cast<size_t>(now * element_bytes))));
    decode_floats(tensor.dtype, bytes.data(), now, values.data());
    TRY(visit(first, std::span<const float>(values).first(static_cast<size_t>(now))));
  }
  return {};
}

Status read_floats(const TensorFile& file, const TensorInfo& tensor, float* to) {
  return each_run(file, tensor, [to](int64_t first, std::span<const float> values) -> Status {
    std::copy(values.begin(), values.end(), to + first);
    return {};
  });
}

Status import_parameter(const TensorFile& file, const TensorInfo& tensor,
                        const Parameter& parameter, float* to) {
  if (!is_conv1d(parameter)) return read_floats(file, tensor, to);
  std::vector<float> stored(static_cast<size_t>(parameter.count()));
  TRY(read_floats(file, tensor, stored.data()));
  transpose(stored.data(), {.rows = tensor.shape[0], .columns = tensor.shape[1]}, to);
  return {};
}

// The head is the token embedding's transpose by construction: a file that stores it has it twice.
Status check_head(const TensorFile& file, const TensorInfo& head, const float* embedding) {
  return each_run(file, head, [&](int64_t first, std::span<const float> values) -> Status {
    if (std::memcmp(values.data(), embedding + first, values.size_bytes()) == 0) return {};
    return invalid(file.path() + ": " + head.name +
                   " differs from wte.weight, expected the same values: a head of its own is not "
                   "in this version");
  });
}

}  // namespace

Status import_weights(const std::string& path, const ModelConfig& config,
                      const ParameterArena& arena, float* parameters) {
  TRY_ASSIGN(const TensorFile file, TensorFile::open(path));
  const Result<HuggingFaceWeights> weights = match_hugging_face(file.header(), config);
  if (!weights.ok()) return Error{weights.error().code, path + ": " + weights.error().message};
  std::fill_n(parameters, arena.count, 0.0f);
  for (const Parameter& parameter : parameter_table(config)) {
    const ArenaEntry* entry = arena.find(parameter.id);
    CHECK(entry != nullptr && entry->count >= parameter.count());
    const TensorInfo& tensor = *weights->parameters[static_cast<size_t>(parameter.id)];
    TRY(import_parameter(file, tensor, parameter, parameters + entry->offset));
  }
  if (weights->head == nullptr) return {};
  return check_head(file, *weights->head, parameters + arena.find(kTokenEmbedding)->offset);
}

}  // namespace lockstep
