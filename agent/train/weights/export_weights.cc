#include "agent/train/weights/export_weights.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/tensor_file.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/transpose.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

Result<VerifiedCheckpoint> find_checkpoint(const std::string& from) {
  std::error_code error;
  if (fs::exists(from + "/" + kManifestName, error)) return verify_checkpoint(from);
  TRY_ASSIGN(std::optional<VerifiedCheckpoint> newest, CheckpointFolder(from, 1).newest());
  if (newest) return *std::move(newest);
  return not_found("[export] " + from +
                   " has no valid checkpoint; expected a folder such as step-00001000, or one that "
                   "contains such folders");
}

// The parameters that the file has, every one with its shape in a checkpoint.
Result<std::vector<Parameter>> parameters_in(const TensorFile& file) {
  const auto named = [&](const Error& error) {
    return error.with_message("[export] " + file.path() + ": " + error.message);
  };
  Result<ModelConfig> config = dimensions_of(file.header());
  if (!config.ok()) return named(config.error());
  config->tied = file.find("lm_head.weight") == nullptr;
  if (config->design().has_rotary()) config->context = 1;  // any: no parameter depends on it
  if (const Status built = validate(*config); !built.ok()) return named(built.error());
  std::vector<Parameter> table = parameter_table(*config);
  for (const Parameter& parameter : table) {
    TRY(file.read(parameter.name, parameter.shape(), {}));  // no pieces: checks alone
  }
  return table;
}

// The rows of a parameter that one of the tensors is.
Status write_tensor(const TensorFile& file, const Parameter& parameter,
                    const StoredTensorInfo& stored, TensorFileWriter& writer) {
  const int64_t columns = parameter.dims[1];
  std::vector<float> values(static_cast<size_t>(stored.rows * columns));
  const TensorPiece rows{values.data(), stored.first_row * columns, stored.rows * columns};
  TRY(file.read(parameter.name, parameter.shape(), {&rows, 1}));
  if (!stored.is_transposed) return writer.put(values);
  std::vector<float> turned(values.size());
  transpose(values.data(), {.rows = stored.rows, .columns = columns}, turned.data());
  return writer.put(turned);
}

// How many tensors it has.
Result<int64_t> write_file(const TensorFile& file, const std::vector<Parameter>& table,
                           const std::string& path) {
  std::vector<TensorFileWriter::Shape> shapes;
  for (const Parameter& parameter : table) {
    for (const StoredTensorInfo& stored : hugging_face_tensors(parameter)) {
      shapes.push_back({stored.name, stored.shape});
    }
  }
  TRY_ASSIGN(TensorFileWriter writer, TensorFileWriter::create(path, shapes));
  for (const Parameter& parameter : table) {
    for (const StoredTensorInfo& stored : hugging_face_tensors(parameter)) {
      TRY(write_tensor(file, parameter, stored, writer));
    }
  }
  TRY_ASSIGN(const FileDigest digest, writer.finish());
  (void)digest;
  return static_cast<int64_t>(shapes.size());
}

// Under another name until it is whole.
Result<int64_t> write_whole(const TensorFile& file, const std::vector<Parameter>& table,
                            const std::string& to) {
  std::error_code error;
  const std::string unfinished = to + ".unfinished";
  fs::remove(unfinished, error);
  const Result<int64_t> written = write_file(file, table, unfinished);
  if (written.ok()) fs::rename(unfinished, to, error);
  if (written.ok() && !error) return written;
  std::error_code ignored;
  fs::remove(unfinished, ignored);
  if (!written.ok()) return written;
  return errno_error("[export] rename to " + to, error.value());
}

}  // namespace

Result<ExportedWeights> export_weights(const std::string& from, const std::string& to) {
  std::error_code error;
  if (fs::exists(to, error)) return invalid("[export] " + to + " already exists");
  TRY_ASSIGN(const VerifiedCheckpoint checkpoint, find_checkpoint(from));
  TRY_ASSIGN(const TensorFile file, TensorFile::open(checkpoint.path + "/model.safetensors"));
  TRY_ASSIGN(const std::vector<Parameter> table, parameters_in(file));
  TRY_ASSIGN(const int64_t tensors, write_whole(file, table, to));
  ExportedWeights exported{
      .checkpoint = checkpoint.path, .step = checkpoint.manifest.position.step, .tensors = tensors};
  for (const Parameter& parameter : table) exported.parameters += parameter.count();
  return exported;
}

}  // namespace lockstep::train
