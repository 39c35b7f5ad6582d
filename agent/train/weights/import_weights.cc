#include "agent/train/weights/import_weights.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "agent/train/weights/float_decode.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/transpose.h"
#include "agent/train/weights/weight_files.h"

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

// One of the tensors that make a parameter, whose first element is at `to`.
Status import_tensor(const TensorFile& file, const TensorInfo& tensor,
                     const StoredTensorInfo& stored, const Parameter& parameter, float* to) {
  if (!stored.is_transposed) {
    return read_floats(file, tensor, to + stored.first_row * parameter.dims[1]);
  }
  std::vector<float> turned(static_cast<size_t>(parameter.count()));
  TRY(read_floats(file, tensor, turned.data()));
  transpose(turned.data(), {.rows = tensor.shape[0], .columns = tensor.shape[1]}, to);
  return {};
}

// A tied head is the token embedding by construction: a file that stores it has it twice.
Status check_head(const TensorFile& file, const TensorInfo& head, const std::string& tokens,
                  const float* embedding) {
  return each_run(file, head, [&](int64_t first, std::span<const float> values) -> Status {
    if (std::memcmp(values.data(), embedding + first, values.size_bytes()) == 0) return {};
    return invalid(file.path() + ": " + head.name + " differs from " + tokens +
                   ", expected the same values, or spec.train.model.head: untied");
  });
}

}  // namespace

Status import_weights(const std::string& path, const ModelConfig& config,
                      const ParameterArena& arena, float* parameters) {
  TRY_ASSIGN(const WeightFiles files, WeightFiles::open(path));
  const Result<HuggingFaceWeights> weights = match_hugging_face(files.header(), config);
  if (!weights.ok()) return Error{weights.error().code, path + ": " + weights.error().message};
  std::fill_n(parameters, arena.count, 0.0f);
  const std::vector<Parameter> table = parameter_table(config);
  for (const Parameter& parameter : table) {
    const ArenaEntry* entry = arena.find(parameter.id);
    CHECK(entry != nullptr && entry->count >= parameter.count());
    const std::vector<StoredTensorInfo> stored = hugging_face_tensors(parameter);
    for (size_t i = 0; i < stored.size(); ++i) {
      const TensorInfo& tensor = *weights->parameters[static_cast<size_t>(parameter.id)][i];
      TRY(import_tensor(files.file_of(tensor), tensor, stored[i], parameter,
                        parameters + entry->offset));
    }
  }
  if (weights->head == nullptr) return {};
  return check_head(files.file_of(*weights->head), *weights->head, table[kTokenEmbedding].name,
                    parameters + arena.find(kTokenEmbedding)->offset);
}

}  // namespace lockstep
