// Weights as Hugging Face stores them, against PyTorch: tests/golden/make_hugging_face_golden.py
// says what the file holds. The file is the committed one, or that of LOCKSTEP_GOLDEN_FILE.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/model_state.h"
#include "agent/train/weights/export_weights.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/import_weights.h"
#include "common/base/json.h"
#include "tests/agent/model/tiny_gpt.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep {
namespace {

constexpr double kLossTolerance = 1e-6;  // as the model's own golden test has it

std::string golden_path() {
  const char* fresh = std::getenv("LOCKSTEP_GOLDEN_FILE");
  return fresh != nullptr ? fresh
                          : LOCKSTEP_SOURCE_DIR "/tests/golden/hugging_face_gpt2.safetensors";
}

class HuggingFaceGolden : public ::testing::Test {
 protected:
  std::string metadata(const char* key) const { return golden_.header().metadata.at(key); }
  std::vector<int32_t> integers(const char* key) const {
    return parse_json(metadata(key)).value().get<std::vector<int32_t>>();
  }
  ModelConfig config() const {
    ModelConfig config = dimensions_of(golden_.header()).value();
    config.heads = std::stoll(metadata("heads"));
    return config;
  }
  static std::string bytes_of(const TensorFile& file, const TensorInfo& tensor) {
    std::string bytes(tensor.end - tensor.begin, '\0');
    EXPECT_TRUE(file.read_bytes(tensor, 0, bytes).ok());
    return bytes;
  }

  const TensorFile golden_ = TensorFile::open(golden_path()).value();
  const ModelConfig config_ = config();
};

TEST_F(HuggingFaceGolden, HasPyTorchsLossAfterTheImport) {
  const std::vector<int32_t> tokens = integers("tokens");
  const std::vector<int32_t> targets = integers("targets");
  const auto rows = static_cast<int64_t>(tokens.size());
  testing::TinyGpt gpt(config_, {rows / config_.context, config_.context});
  const Status imported =
      import_weights(golden_path(), config_, gpt.store.arena(), gpt.store.values().data());
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  const double loss = gpt.loss({.tokens = tokens.data(),
                                .targets = targets.data(),
                                .batch = rows / config_.context,
                                .sequence = config_.context,
                                .gradient_scale = 1.0f / static_cast<float>(rows)});
  const double expected = std::stod(metadata("loss"));
  EXPECT_NEAR(loss / static_cast<double>(rows), expected, kLossTolerance * expected);
}

TEST_F(HuggingFaceGolden, IsExportedAsPyTorchWroteIt) {
  const ParameterArena arena = parameter_arena(config_, whole_model(config_));
  std::vector<float> parameters(static_cast<size_t>(arena.count));
  ASSERT_TRUE(import_weights(golden_path(), config_, arena, parameters.data()).ok());
  const ModelState state{.config = config_,
                         .shard = {},
                         .arena = &arena,
                         .parameters = parameters.data(),
                         .first_moments = parameters.data(),
                         .second_moments = parameters.data()};
  TemporaryFolder folder;
  CheckpointFolder checkpoints(folder.path(), 1);
  const Status saved =
      checkpoints.save({.position = {.step = 1}, .files = {}}, model_state_files(state));
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  ASSERT_TRUE(export_weights(folder.path(), folder.file("exported")).ok());

  const TensorFile exported = TensorFile::open(folder.file("exported")).value();
  std::set<std::string> theirs;  // but for the head and the buffers
  size_t compared = 0;
  for (const TensorInfo& tensor : golden_.header().tensors) {
    const bool is_buffer =
        tensor.name.ends_with(".attn.bias") || tensor.name.ends_with("masked_bias");
    if (is_buffer || tensor.name == "lm_head.weight") continue;
    theirs.insert(tensor.name);
    const TensorInfo* ours = exported.find(tensor.name);
    ASSERT_NE(ours, nullptr) << tensor.name;
    EXPECT_EQ(ours->shape, tensor.shape) << tensor.name;
    if (tensor.dtype != "F32") continue;
    EXPECT_TRUE(bytes_of(exported, *ours) == bytes_of(golden_, tensor)) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(exported.header().tensors.size(), theirs.size());
  EXPECT_EQ(compared, theirs.size() - 6) << "two embeddings and four matrices are of 16 bits";

  std::vector<float> again(parameters.size());
  ASSERT_TRUE(import_weights(folder.file("exported"), config_, arena, again.data()).ok());
  EXPECT_EQ(std::memcmp(again.data(), parameters.data(), again.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace lockstep
