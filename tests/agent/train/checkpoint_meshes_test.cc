// The ranks of any mesh write a state, and the ranks of any other mesh read it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/agent/train/saved_checkpoints.h"

namespace lockstep::train {
namespace {

struct Case {
  const char* name;
  ModelDesign design;
  bool has_tensor_axis;
};

const ModelConfig kGpt{.layers = 4, .width = 8, .heads = 2, .context = 4, .vocabulary = 11};

ModelConfig llama(bool tied, int64_t kv_heads = 2) {
  return {.layers = 4,
          .width = 16,
          .heads = 4,
          .context = 4,
          .vocabulary = 11,
          .family = Family::kLlama,
          .hidden = 12,
          .tied = tied,
          .kv_heads = kv_heads};
}

const Case kCases[] = {
    {"Gpt", kGpt, true},
    {"TiedLlama", llama(true), true},
    {"UntiedLlama", llama(false), true},
    {"LlamaWithOneHeadOfKeys", llama(true, 1), true},
    {"Mlp", MlpConfig{.inputs = 7, .hidden = {10, 33}, .outputs = 3}, false},
};

std::vector<Mesh> meshes_of(const Case& c) {
  std::vector<Mesh> meshes;
  for (const int64_t data : {1, 2, 3, 4, 8}) meshes.push_back({.data = data});
  meshes.push_back({.pipeline = 2});
  meshes.push_back({.pipeline = 2, .data = 3});
  if (c.has_tensor_axis) {
    meshes.push_back({.tensor = 2});
    meshes.push_back({.data = 3, .tensor = 2});
    meshes.push_back({.pipeline = 2, .data = 2, .tensor = 2});
    meshes.push_back({.pipeline = 2, .data = 2, .virtual_stages = 2});
  }
  return meshes;
}

std::string text_of(const Mesh& mesh) {
  return "pipeline " + std::to_string(mesh.pipeline) + ", data " + std::to_string(mesh.data) +
         ", tensor " + std::to_string(mesh.tensor) + ", virtual stages " +
         std::to_string(mesh.virtual_stages);
}

class CheckpointMeshes : public testing::TestWithParam<Case> {
 protected:
  CheckpointMeshes() : files_(Files{{"/s/f/", ""}}) {}

  MemoryFileSystem files_;
  FolderStorage storage_{"/s", files_};
};

TEST_P(CheckpointMeshes, ReadEachOthersCheckpoints) {
  const std::vector<Mesh> meshes = meshes_of(GetParam());
  for (const Mesh& mesh : meshes) {
    ASSERT_TRUE(validate(GetParam().design, mesh.tensor).ok());
    SCOPED_TRACE("written by " + text_of(mesh));
    files_ = MemoryFileSystem(Files{{"/s/f/", ""}});
    const WrittenState state(GetParam().design, mesh, 1);
    const auto written = state.write_all(storage_, "f");
    ASSERT_TRUE(written.ok()) << written.error().message;
    auto reader = CheckpointReader::open(storage_, "f", {.mesh = mesh, .files = *written});
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    EXPECT_TRUE(reader->expect(state.table().parameters, kTestStates).ok());
    for (const Mesh& other : meshes) {
      const auto is_in = WrittenState(GetParam().design, other, 1).is_in(*reader);
      ASSERT_TRUE(is_in.ok()) << is_in.error().message;
      EXPECT_TRUE(*is_in) << "read by " << text_of(other);
    }
    EXPECT_FALSE(WrittenState(GetParam().design, mesh, 2).is_in(*reader).value());
  }
}

// A checkpoint takes the room of its elements, whichever ranks write it: nothing is written twice.
TEST_P(CheckpointMeshes, WriteEachElementOnce) {
  for (const Mesh& mesh : meshes_of(GetParam())) {
    files_ = MemoryFileSystem(Files{{"/s/f/", ""}});
    const auto written = WrittenState(GetParam().design, mesh, 1).write_all(storage_, "f");
    ASSERT_TRUE(written.ok());
    uint64_t values = 0;
    for (const ManifestFile& file : *written) {
      const std::string bytes = files_.files().at("/s/f/" + file.name);
      values +=
          bytes.size() - 8 - safetensors_header_bytes(bytes.substr(0, 8), bytes.size()).value();
    }
    EXPECT_EQ(values, static_cast<uint64_t>(4 * kStateKinds * parameter_count(GetParam().design)))
        << text_of(mesh);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointMeshes, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::train
