// The header of a checkpoint's tensors, or of Hugging Face's weights: the first 8 bytes are its
// length, the rest its JSON. Assumes a file that is as long as the last tensor says, so that whole
// headers are accepted.
#include "agent/train/checkpoint/safetensors.h"

#include "common/base/check.h"
#include "common/base/json.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/weights.h"

using namespace lockstep;

namespace {

constexpr size_t kLengthBytes = 8;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::fuzz_text(data, size);
  const std::string_view first = text.substr(0, kLengthBytes);
  if (const Result<uint64_t> bytes = train::safetensors_header_bytes(first, size); bytes.ok()) {
    CHECK(*bytes <= train::kSafetensorsHeaderMax && *bytes + kLengthBytes <= size);
  }
  if (size < kLengthBytes) return 0;
  const std::string_view json = text.substr(kLengthBytes);
  const Result<Json> document = parse_json(json);
  const uint64_t tensors = document.ok() && document->is_object() ? fuzz::data_bytes(*document) : 0;
  const uint64_t before = kLengthBytes + json.size();
  const uint64_t file_bytes = tensors > UINT64_MAX - before ? UINT64_MAX : before + tensors;
  const Result<train::SafetensorsHeader> header = train::parse_safetensors_header(json, file_bytes);
  if (!header.ok()) {
    CHECK(header.error().code == Code::kCorrupt);
    return 0;
  }
  uint64_t at = 0;
  for (const train::TensorInfo& tensor : header->tensors) {
    CHECK(tensor.begin == at && tensor.end >= tensor.begin);
    CHECK(train::element_count(tensor.shape).ok());
    at = tensor.end;
  }
  CHECK(header->data_begin + at == file_bytes);
  fuzz::check_weights(*header);
  // The header that we write reads back as the same.
  const std::string written = train::format_safetensors_header(*header);
  const Result<train::SafetensorsHeader> again = train::parse_safetensors_header(
      std::string_view(written).substr(kLengthBytes), written.size() + at);
  CHECK(again.ok() && again->tensors == header->tensors && again->metadata == header->metadata);
  return 0;
}
