// The header of a checkpoint's tensors, or of Hugging Face's weights: the first 8 bytes are its
// length, the rest its JSON. The file that it would describe is as long as the last tensor says, so
// that whole headers get through.
#include "agent/train/checkpoint/safetensors.h"

#include "agent/train/weights/hugging_face.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr size_t kLengthBytes = 8;

// Where the tensors of the header end; 0 if that can't be told.
uint64_t data_bytes(const Json& header) {
  uint64_t end = 0;
  for (const auto& [name, tensor] : header.items()) {
    const Json* offsets = find_member(tensor, "data_offsets");
    if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2) continue;
    const Json& last = offsets->at(1);
    if (last.is_number_unsigned()) end = std::max(end, last.get<uint64_t>());
  }
  return end;
}

// What an import reads of a file with this header is there, and is what the model needs.
void check_weights(const SafetensorsHeader& header, const ModelConfig& model) {
  const Result<HuggingFaceWeights> weights = match_hugging_face(header, model);
  if (!weights.ok()) {
    CHECK(weights.error().code == Code::kInvalid);
    return;
  }
  const std::vector<Parameter> table = parameter_table(model);
  CHECK(weights->parameters.size() == table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    uint64_t elements = 0;
    for (const TensorInfo* tensor : weights->parameters[i]) {
      elements += (tensor->end - tensor->begin) / (tensor->dtype == "F32" ? 4 : 2);
    }
    CHECK(elements == static_cast<uint64_t>(table[i].count()));
  }
}

void check_weights(const SafetensorsHeader& header) {
  const Result<ModelConfig> told = dimensions_of(header);
  CHECK(told.ok() || told.error().code == Code::kInvalid);
  ModelConfig model{.layers = 1, .width = 2, .heads = 1, .context = 1, .vocabulary = 3};
  check_weights(header, model);
  model.family = Family::kLlama;
  model.hidden = 1;
  check_weights(header, model);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz_text(data, size);
  const std::string_view first = text.substr(0, kLengthBytes);
  if (const Result<uint64_t> bytes = safetensors_header_bytes(first, size); bytes.ok()) {
    CHECK(*bytes <= kSafetensorsHeaderMax && *bytes + kLengthBytes <= size);
  }
  if (size < kLengthBytes) return 0;
  const std::string_view json = text.substr(kLengthBytes);
  const Result<Json> document = parse_json(json);
  const uint64_t tensors = document.ok() && document->is_object() ? data_bytes(*document) : 0;
  const uint64_t before = kLengthBytes + json.size();
  const uint64_t file_bytes = tensors > UINT64_MAX - before ? UINT64_MAX : before + tensors;
  const Result<SafetensorsHeader> header = parse_safetensors_header(json, file_bytes);
  if (!header.ok()) {
    CHECK(header.error().code == Code::kCorrupt);
    return 0;
  }
  uint64_t at = 0;
  for (const TensorInfo& tensor : header->tensors) {
    CHECK(tensor.begin == at && tensor.end >= tensor.begin);
    CHECK(element_count(tensor.shape).ok());
    at = tensor.end;
  }
  CHECK(header->data_begin + at == file_bytes);
  check_weights(*header);
  // What we write of it reads back as the same.
  const std::string written = format_safetensors_header(*header);
  const Result<SafetensorsHeader> again =
      parse_safetensors_header(std::string_view(written).substr(kLengthBytes), written.size() + at);
  CHECK(again.ok() && again->tensors == header->tensors && again->metadata == header->metadata);
  return 0;
}
