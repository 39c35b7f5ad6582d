#include "agent/train/checkpoint/state_files.h"

#include <utility>

namespace lockstep::train {
namespace {

constexpr char kModelFile[] = "model.safetensors";
constexpr char kOptimizerFile[] = "optimizer.safetensors";

// `state`: the empty name of the parameters themselves, or that of a state of the optimizer.
std::vector<TensorFileWriter::Shape> shapes_of(std::span<const Parameter> table,
                                               const std::string& state) {
  const std::string suffix = state.empty() ? "" : "." + state;
  std::vector<TensorFileWriter::Shape> shapes;
  shapes.reserve(table.size());
  for (const Parameter& parameter : table) {
    shapes.push_back({parameter.name + suffix, parameter.shape()});
  }
  return shapes;
}

}  // namespace

std::vector<StateFile> state_files(std::span<const Parameter> table, const StateNames& states) {
  std::vector<StateFile> files{{kModelFile, shapes_of(table, "")}};
  if (states.empty()) return files;
  StateFile optimizer{kOptimizerFile, {}};
  for (const std::string& state : states) {
    for (TensorFileWriter::Shape& shape : shapes_of(table, state)) {
      optimizer.tensors.push_back(std::move(shape));
    }
  }
  files.push_back(std::move(optimizer));
  return files;
}

// Creates the file of the next tensor if it is the first one there.
Status StateWriter::begin_tensor() {
  CHECK(written_.size() < files_.size());
  const StateFile& file = files_[written_.size()];
  if (!writer_) {
    TRY_ASSIGN(writer_, TensorFileWriter::create(folder_ + "/" + file.name, file.tensors));
  }
  CHECK(tensors_ < file.tensors.size());
  TRY_ASSIGN(missing_, element_count(file.tensors[tensors_].dims));
  ++tensors_;
  return {};
}

Status StateWriter::write(const parallel::StateTensor& tensor, int64_t first,
                          std::span<const float> values) {
  if (first == 0) {
    CHECK(missing_ == 0);
    TRY(begin_tensor());
  }
  const StateFile& file = files_[written_.size()];
  CHECK(file.tensors[tensors_ - 1].name.starts_with(tensor.parameter.name));
  CHECK(first + missing_ == tensor.parameter.count() && std::ssize(values) <= missing_);
  TRY(writer_->put(values));
  missing_ -= std::ssize(values);
  if (missing_ > 0 || tensors_ < file.tensors.size()) return {};
  TRY_ASSIGN(const FileDigest digest, writer_->finish());
  written_.push_back({file.name, digest});
  writer_.reset();
  tensors_ = 0;
  return {};
}

Result<std::vector<ManifestFile>> StateWriter::finish() {
  CHECK(written_.size() == files_.size());
  return std::move(written_);
}

Result<StateReader> StateReader::open(const std::string& folder, std::span<const Parameter> table,
                                      const StateNames& states) {
  StateReader reader;
  reader.parameters_ = table.size();
  for (const StateFile& wanted : state_files(table, states)) {
    TRY_ASSIGN(TensorFile file, TensorFile::open(folder + "/" + wanted.name));
    for (const TensorFileWriter::Shape& tensor : wanted.tensors) {
      TRY(file.read(tensor.name, tensor.dims, {}));  // no pieces: checks alone
      reader.places_.push_back({reader.files_.size(), file.find(tensor.name)});
    }
    reader.files_.push_back(std::move(file));
  }
  return reader;
}

Status StateReader::read(const parallel::StateTensor& tensor, int64_t first, std::span<float> to) {
  const size_t index = tensor.kind * parameters_ + static_cast<size_t>(tensor.parameter.id);
  CHECK(index < places_.size());
  const Place& place = places_[index];
  const std::span<char> bytes(reinterpret_cast<char*>(to.data()), to.size_bytes());
  return files_[place.file].read_bytes(*place.tensor, static_cast<uint64_t>(first) * sizeof(float),
                                       bytes);
}

}  // namespace lockstep::train
