// An index of weights in several files, and their headers: a line of JSON for the index, then one
// for the header of each file, in the order of the file names. Assumes files that are as long as
// their last tensor says.
#include "agent/train/weights/weight_index.h"

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/weights.h"

using namespace lockstep;

namespace {

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

Result<train::SafetensorsHeader> header_of(std::string_view json) {
  const Result<Json> document = parse_json(json);
  const uint64_t tensors = document.ok() && document->is_object() ? fuzz::data_bytes(*document) : 0;
  const uint64_t before = sizeof(uint64_t) + json.size();
  return train::parse_safetensors_header(json,
                                         tensors > UINT64_MAX - before ? before : before + tensors);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = fuzz::fuzz_text(data, size);
  const Result<train::WeightIndex> index = train::parse_weight_index(take_line(text));
  if (!index.ok()) {
    CHECK(index.error().code == Code::kCorrupt);
    return 0;
  }
  CHECK(!index->empty());
  train::IndexedFiles files;
  train::SafetensorsHeader all;  // as in WeightFiles: of all files, in their order
  std::set<std::string> names;
  for (const auto& file : *index) {
    CHECK(!file.first.empty() && file.first.find('/') == std::string::npos);
    const Result<train::SafetensorsHeader> header = header_of(take_line(text));
    if (!header.ok()) return 0;
    const Status agrees = files.add(file, *header);
    if (!agrees.ok()) {
      CHECK(agrees.error().code == Code::kInvalid);
      return 0;
    }
    for (const train::TensorInfo& tensor : header->tensors) {
      CHECK(names.insert(tensor.name).second);
      all.tensors.push_back(tensor);
    }
    for (const std::string& tensor : file.second) CHECK(names.contains(tensor));
  }
  fuzz::check_weights(all);
  return 0;
}
