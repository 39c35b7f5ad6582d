#include "agent/train/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include "agent/train/checkpoint/tensor_slice.h"

namespace lockstep::train {
namespace {

// Rectangles of one tensor; their comparison takes the square of it.
constexpr size_t kPartsMax = 8192;

Error in_file(const std::string& path, const Error& error) {
  return {error.code, "[checkpoint] " + path + ": " + error.message, Blame::kStorage};
}

Result<SafetensorsHeader> read_header(ChunkedReader& file) {
  std::string first(std::min<uint64_t>(8, file.bytes()), '\0');
  TRY(file.read(0, first));
  const Result<uint64_t> bytes = safetensors_header_bytes(first, file.bytes());
  if (!bytes.ok()) return in_file(file.path(), bytes.error());
  std::string json(*bytes, '\0');
  TRY(file.read(first.size(), json));
  Result<SafetensorsHeader> header = parse_safetensors_header(json, file.bytes());
  if (!header.ok()) return in_file(file.path(), header.error());
  return header;
}

std::span<char> bytes_of(std::span<float> values) {
  return {reinterpret_cast<char*>(values.data()), values.size_bytes()};
}

}  // namespace

Error CheckpointReader::bad(const std::string& what) const {
  return corrupt("[checkpoint] " + path_ + ": " + what, Blame::kStorage);
}

Result<CheckpointReader> CheckpointReader::open(Storage& storage, const std::string& folder,
                                                const Manifest& manifest) {
  CheckpointReader reader;
  reader.path_ = storage.describe(folder);
  for (const ManifestFile& file : manifest.files) {
    TRY_ASSIGN(ChunkedReader opened, ChunkedReader::open(storage, folder, file));
    TRY(reader.add_file(std::move(opened)));
  }
  TRY(reader.check_tensors());
  return reader;
}

Status CheckpointReader::add_file(ChunkedReader file) {
  files_.push_back(std::move(file));
  TRY_ASSIGN(const SafetensorsHeader header, read_header(files_.back()));
  files_.back().free_buffer();
  for (const TensorInfo& info : header.tensors) TRY(add_tensor(info, header.data_begin));
  return {};
}

Status CheckpointReader::add_tensor(const TensorInfo& info, uint64_t data_begin) {
  const std::optional<TensorSlice> slice = parse_slice(info.name, info.shape);
  if (!slice || info.dtype != "F32") {
    return bad("tensor \"" + info.name.substr(0, 200) + "\" is not a slice in fp32");
  }
  Tensor& tensor = tensors_[slice->tensor];
  if (tensor.parts.size() == kPartsMax) return bad(slice->tensor + " has too many slices");
  tensor.shape.resize(std::max<size_t>(tensor.shape.size(), static_cast<size_t>(slice->rank)));
  tensor.shape[0] = std::max(tensor.shape[0], slice->box.row_end);
  if (slice->rank == 2) tensor.shape[1] = std::max(tensor.shape[1], slice->box.column_end);
  tensor.parts.push_back({files_.size() - 1, data_begin + info.begin, slice->box});
  return {};
}

Status CheckpointReader::check_tensors() const {
  std::vector<TensorBox> boxes;
  for (const auto& [name, tensor] : tensors_) {
    TRY(element_count(tensor.shape));  // and so not out of range
    boxes.clear();
    for (const Part& part : tensor.parts) boxes.push_back(part.box);
    if (!covers_once(boxes, tensor.shape[0], tensor.columns())) {
      return bad("the slices of " + name + " do not cover it exactly once");
    }
  }
  return {};
}

std::map<std::string, std::vector<int64_t>> CheckpointReader::shapes() const {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : tensors_) shapes.emplace(name, tensor.shape);
  return shapes;
}

Status CheckpointReader::expect(std::span<const Parameter> table, const StateNames& states) const {
  for (size_t kind = 0; kind <= states.size(); ++kind) {
    for (const Parameter& parameter : table) {
      const std::string name = state_tensor_name(parameter, states, kind);
      const auto found = tensors_.find(name);
      if (found != tensors_.end() && found->second.shape == parameter.shape()) continue;
      return invalid("[checkpoint] " + path_ + ": expected " + name + " as F32 " +
                         shape_text(parameter.shape()) + ", it is " +
                         (found == tensors_.end() ? "missing" : shape_text(found->second.shape)) +
                         "; the checkpoint belongs to another model or optimizer",
                     Blame::kConfig);
    }
  }
  return {};
}

Status CheckpointReader::read(const std::string& tensor, int64_t first, std::span<float> to) {
  const auto found = tensors_.find(tensor);
  CHECK(found != tensors_.end());
  const int64_t columns = found->second.columns();
  CHECK(first >= 0 && first + std::ssize(to) <= found->second.shape[0] * columns);
  for (const Part& part : found->second.parts) TRY(read_part(part, columns, first, to));
  return {};
}

// A part as wide as the tensor is one run of it; otherwise every row is a run.
Status CheckpointReader::read_part(const Part& part, int64_t columns, int64_t first,
                                   std::span<float> to) {
  const TensorBox& box = part.box;
  const int64_t end = first + std::ssize(to);
  if (part.file != read_last_) files_[read_last_].free_buffer();
  read_last_ = part.file;
  const bool is_wide = box.columns() == columns;
  const int64_t rows_in_run = is_wide ? box.rows() : 1;
  int64_t row = is_wide ? box.row_begin : std::max(box.row_begin, first / columns);
  for (; row < box.row_end && row * columns < end; row += rows_in_run) {
    const int64_t run_begin = row * columns + box.column_begin;
    const int64_t run_end = run_begin + rows_in_run * box.columns();
    const int64_t from = std::max(first, run_begin);
    const int64_t until = std::min(end, run_end);
    if (from >= until) continue;
    const int64_t element = (row - box.row_begin) * box.columns() + from - run_begin;
    TRY(files_[part.file].read(part.begin + static_cast<uint64_t>(element) * sizeof(float),
                               bytes_of(to.subspan(static_cast<size_t>(from - first),
                                                   static_cast<size_t>(until - from)))));
  }
  return {};
}

Status CheckpointReader::verify() {
  for (ChunkedReader& file : files_) {
    TRY(file.verify());
    file.free_buffer();
  }
  return {};
}

}  // namespace lockstep::train
