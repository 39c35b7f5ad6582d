#include "tests/agent/train/stored_tensors.h"

#include <gtest/gtest.h>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/checkpoint_reader.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "agent/train/checkpoint/safetensors.h"

namespace lockstep::train {
namespace {

Result<std::map<std::string, std::vector<float>>> read_tensors(const std::string& checkpoint,
                                                               std::string_view stem) {
  FolderStorage storage(checkpoint, real_file_system());
  TRY_ASSIGN(StoredManifest stored, read_manifest(storage, "."));
  std::erase_if(stored.manifest.files,
                [&](const ManifestFile& file) { return !file.name.starts_with(stem); });
  TRY_ASSIGN(CheckpointReader reader, CheckpointReader::open(storage, ".", stored.manifest));
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, shape] : reader.shapes()) {
    std::vector<float>& values = tensors[name];
    values.resize(static_cast<size_t>(element_count(shape).value()));
    TRY(reader.read(name, 0, values));
  }
  return tensors;
}

}  // namespace

std::map<std::string, std::vector<float>> stored_tensors(const std::string& checkpoint,
                                                         std::string_view stem) {
  auto tensors = read_tensors(checkpoint, stem);
  EXPECT_TRUE(tensors.ok()) << tensors.error().message;
  return tensors.ok() ? *std::move(tensors) : std::map<std::string, std::vector<float>>();
}

std::string stored_bytes(const std::string& checkpoint, std::string_view stem) {
  std::string bytes;
  for (const auto& [name, values] : stored_tensors(checkpoint, stem)) {
    bytes += name;
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return bytes;
}

}  // namespace lockstep::train
