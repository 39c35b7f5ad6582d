#include "agent/train/weights/export_weights.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/checkpoint/safetensors.h"
#include "agent/train/weights/checkpoint_weights.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/transpose.h"
#include "agent/train/weights/weight_file_writer.h"
#include "agent/train/weights/weight_index.h"
#include "agent/train/weights/weight_split.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceValues = int64_t{2} << 20;  // 8 MiB are read and written at a time

// A tensor to write: some rows of a parameter, or their transpose.
struct ExportedTensor {
  WeightTensor parameter;  // as in the checkpoint
  StoredTensorInfo stored;
};

// Returns the model's parameters, each of which the checkpoint has with its shape.
Result<std::vector<Parameter>> parameters_in(const CheckpointWeights& weights) {
  const auto named = [&](const std::string& message) {
    return invalid("[export] " + weights.checkpoint + ": " + message);
  };
  SafetensorsHeader header;
  for (const auto& [name, shape] : weights.tensors) header.tensors.push_back({name, "F32", shape});
  const auto find = [&](const std::string& name) {
    return std::find_if(weights.tensors.begin(), weights.tensors.end(),
                        [&](const WeightTensor& tensor) { return tensor.name == name; });
  };
  Result<ModelConfig> config = dimensions_of(header);
  if (!config.ok()) return named(config.error().message);
  config->tied = find(std::string(head_name(config->family))) == weights.tensors.end();
  if (config->design().has_rotary()) config->context = 1;  // any: no parameter depends on it
  if (const Status built = validate(*config); !built.ok()) return named(built.error().message);
  std::vector<Parameter> table = parameter_table(*config);
  for (const Parameter& parameter : table) {
    const auto found = find(parameter.name);
    if (found != weights.tensors.end() && found->shape == parameter.shape()) continue;
    const std::string came =
        found == weights.tensors.end() ? "it is missing" : "it is " + shape_text(found->shape);
    return named("expected " + parameter.name + " as F32 " + shape_text(parameter.shape()) + ", " +
                 came);
  }
  return table;
}

std::vector<ExportedTensor> tensors_of(std::span<const Parameter> table) {
  std::vector<ExportedTensor> tensors;
  for (const Parameter& parameter : table) {
    for (const StoredTensorInfo& stored : hugging_face_tensors(parameter)) {
      tensors.push_back({{parameter.name, parameter.shape()}, stored});
    }
  }
  return tensors;
}

// Writes elements [first, last) of a parameter.
Status write_elements(const CheckpointWeights& weights, const ExportedTensor& tensor, int64_t first,
                      int64_t last, WeightFileWriter& writer) {
  std::vector<float> values(static_cast<size_t>(std::min(last - first, kPieceValues)));
  while (first < last) {
    values.resize(static_cast<size_t>(std::min(last - first, kPieceValues)));
    TRY(weights.read(tensor.parameter, first, values));
    TRY(writer.put(values));
    first += std::ssize(values);
  }
  return {};
}

Status write_transpose(const CheckpointWeights& weights, const ExportedTensor& tensor,
                       WeightFileWriter& writer) {
  const MatrixSize size{.rows = tensor.stored.shape[1], .columns = tensor.stored.shape[0]};
  std::vector<float> matrix(static_cast<size_t>(size.rows * size.columns));
  TRY(weights.read(tensor.parameter, tensor.stored.first_row * size.columns, matrix));
  const int64_t columns_max = std::max<int64_t>(kPieceValues / size.rows, 1);
  std::vector<float> turned;
  for (int64_t column = 0; column < size.columns; column += columns_max) {
    const int64_t end = std::min(column + columns_max, size.columns);
    turned.resize(static_cast<size_t>((end - column) * size.rows));
    transpose_columns(matrix.data(), size, {column, end}, turned.data());
    TRY(writer.put(turned));
  }
  return {};
}

Status write_file(const CheckpointWeights& weights, std::span<const ExportedTensor> tensors,
                  kernels::DType dtype, const std::string& path) {
  std::vector<WeightTensor> shapes;
  for (const ExportedTensor& tensor : tensors) {
    shapes.push_back({tensor.stored.name, tensor.stored.shape});
  }
  TRY_ASSIGN(WeightFileWriter writer, WeightFileWriter::create(path, shapes, dtype));
  for (const ExportedTensor& tensor : tensors) {
    const StoredTensorInfo& stored = tensor.stored;
    if (stored.is_transposed) {
      TRY(write_transpose(weights, tensor, writer));
      continue;
    }
    const auto count = element_count(stored.shape).value();
    const int64_t first = stored.first_row * (count / stored.rows);
    TRY(write_elements(weights, tensor, first, first + count, writer));
  }
  return writer.finish();
}

// Writes a new folder of files and their index.
Status write_folder(const CheckpointWeights& weights, std::span<const ExportedTensor> tensors,
                    std::span<const size_t> split, kernels::DType dtype, const std::string& path) {
  std::error_code error;
  fs::create_directory(path, error);
  if (error) return errno_error("[export] folder " + path, error.value(), Blame::kStorage);
  WeightIndex index;
  uint64_t bytes = 0;
  for (size_t i = 0; i < split.size(); ++i) {
    const std::string name = weight_file_name(i + 1, split.size());
    const std::span<const ExportedTensor> of_file = tensors.first(split[i]);
    tensors = tensors.subspan(split[i]);
    TRY(write_file(weights, of_file, dtype, path + "/" + name));
    for (const auto& [parameter, stored] : of_file) {
      index[name].insert(stored.name);
      bytes += data_bytes({stored.name, stored.shape}, dtype);
    }
  }
  TRY(write_file_synced(path + "/model.safetensors.index.json", format_weight_index(index, bytes)));
  return sync_folder(path);
}

// Writes a file, or a folder of several, under another name until it is whole.
Status write_whole(const CheckpointWeights& weights, std::span<const ExportedTensor> tensors,
                   std::span<const size_t> split, kernels::DType dtype, const std::string& to) {
  const std::string unfinished = to + ".unfinished";
  std::error_code error;
  fs::remove_all(unfinished, error);  // of an export that was killed
  Status written = split.size() == 1 ? write_file(weights, tensors, dtype, unfinished)
                                     : write_folder(weights, tensors, split, dtype, unfinished);
  if (written.ok()) {
    fs::rename(unfinished, to, error);
    if (error) written = errno_error("[export] rename to " + to, error.value(), Blame::kStorage);
  }
  if (!written.ok()) {
    fs::remove_all(unfinished, error);
    return written;
  }
  const std::string folder = fs::path(to).parent_path().string();
  return sync_folder(folder.empty() ? "." : folder);
}

Result<std::vector<size_t>> split_checked(std::span<const ExportedTensor> tensors,
                                          const ExportOptions& options) {
  std::vector<WeightTensor> shapes;
  for (const ExportedTensor& tensor : tensors) {
    shapes.push_back({tensor.stored.name, tensor.stored.shape});
  }
  std::vector<size_t> split = split_tensors(shapes, options.dtype, options.file_bytes_max);
  if (split.size() <= kWeightFilesMax) return split;
  return invalid("--max-file-size: " + std::to_string(options.file_bytes_max) +
                 " bytes would make " + std::to_string(split.size()) + " files, expected at most " +
                 std::to_string(kWeightFilesMax) + "; choose a larger size");
}

}  // namespace

Result<ExportedWeights> export_weights(const std::string& from, const std::string& to,
                                       const ExportOptions& options) {
  const std::string path = to.substr(0, to.find_last_not_of('/') + 1);  // folder/ names the folder
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) return invalid("[export] " + to + " already exists");
  TRY_ASSIGN(const CheckpointWeights weights, open_checkpoint_weights(from, options.kind));
  TRY_ASSIGN(const std::vector<Parameter> table, parameters_in(weights));
  const std::vector<ExportedTensor> tensors = tensors_of(table);
  TRY_ASSIGN(const std::vector<size_t> split, split_checked(tensors, options));
  TRY(write_whole(weights, tensors, split, options.dtype, path));
  ExportedWeights exported{.checkpoint = weights.checkpoint,
                           .step = weights.step,
                           .tensors = std::ssize(tensors),
                           .files = std::ssize(split)};
  for (const Parameter& parameter : table) exported.parameters += parameter.count();
  return exported;
}

}  // namespace lockstep::train
