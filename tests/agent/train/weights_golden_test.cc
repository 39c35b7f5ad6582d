// Weights as Hugging Face stores them, compared with PyTorch.
// tests/golden/make_hugging_face_golden.py, make_hugging_face_llama_golden.py and
// make_hugging_face_bert_golden.py describe the files: the committed ones, or those of
// LOCKSTEP_GOLDEN_FILE.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/weights/export_weights.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/import_weights.h"
#include "agent/train/weights/weight_files.h"
#include "common/base/json.h"
#include "tests/agent/model/golden_config.h"
#include "tests/agent/model/tiny_gpt.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/agent/train/whole_state.h"

namespace lockstep::train {
namespace {

constexpr double kLossTolerance = 1e-6;  // the same as in the model's own golden test

std::vector<std::string> golden_paths() {
  if (const char* fresh = std::getenv("LOCKSTEP_GOLDEN_FILE")) return {fresh};
  const std::string folder = LOCKSTEP_SOURCE_DIR "/tests/golden/hugging_face_";
  return {folder + "gpt2.safetensors", folder + "llama.safetensors.index.json",
          folder + "bert.safetensors"};
}

class HuggingFaceGolden : public ::testing::TestWithParam<std::string> {
 protected:
  bool is_llama() const { return GetParam().ends_with(".json"); }
  bool is_bert() const { return GetParam().ends_with("bert.safetensors"); }
  // From the first file.
  std::string metadata(const char* key) const {
    return golden_.file_of(golden_.header().tensors.front()).header().metadata.at(key);
  }
  std::vector<int32_t> integers(const char* key) const {
    return parse_json(metadata(key)).value().get<std::vector<int32_t>>();
  }
  ModelConfig config() const {
    const auto text = [this](const char* key) { return metadata(key); };
    if (is_llama()) return test::golden_llama(text);
    if (is_bert()) return test::golden_bert(text);
    ModelConfig config = dimensions_of(golden_.header()).value();
    config.heads = std::stoll(metadata("heads"));
    return config;
  }
  // Exports the golden values, of a checkpoint, to a file.
  Status export_golden(const TemporaryFolder& folder, const ExportOptions& options = {}) {
    const ParameterArena arena = parameter_arena(config_, whole_model(config_));
    parameters_.resize(static_cast<size_t>(arena.count));
    float* values = parameters_.data();
    WholeState state(config_, {values, values, values}, host_);
    TRY(WholeState(config_, {values}, host_).import(GetParam()));
    TRY(state.save(folder.path(), {.position = {.step = 1}, .files = {}}));
    const auto exported = export_weights(folder.path(), folder.file("exported"), options);
    return exported.ok() ? Status() : Status(exported.error());
  }
  // Returns the name as we write it.
  static std::string new_name(std::string name) {
    for (const auto& [old, now] : {std::pair{".gamma", ".weight"}, std::pair{".beta", ".bias"}}) {
      if (name.ends_with(old)) name.replace(name.rfind('.'), std::string::npos, now);
    }
    return name;
  }
  // Returns whether it is a parameter of ours, and not a tied head or what others need.
  static bool is_ours(const std::string& name) {
    return !(name.ends_with(".attn.bias") || name.ends_with("masked_bias") ||
             name.ends_with("inv_freq") || name == "lm_head.weight" ||
             name.starts_with("bert.pooler.") || name.starts_with("cls.seq_relationship."));
  }
  static std::string bytes_of(const TensorFile& file, const TensorInfo& tensor) {
    std::string bytes(tensor.end - tensor.begin, '\0');
    EXPECT_TRUE(file.read_bytes(tensor, 0, bytes).ok());
    return bytes;
  }

  parallel::HostTransfer host_;
  const WeightFiles golden_ = WeightFiles::open(GetParam()).value();
  const ModelConfig config_ = config();
  std::vector<float> parameters_;
};

TEST_P(HuggingFaceGolden, TellsItsDimensions) {
  const ModelConfig told = dimensions_of(golden_.header()).value();
  EXPECT_EQ(told.family, config_.family);
  EXPECT_EQ(told.layers, config_.layers);
  EXPECT_EQ(told.width, config_.width);
  EXPECT_EQ(told.vocabulary, config_.vocabulary);
  EXPECT_EQ(told.hidden, config_.hidden_width());
  EXPECT_EQ(told.kv_width(), is_llama() ? config_.kv_width() : config_.width);
}

TEST_P(HuggingFaceGolden, HasPyTorchsLossAfterTheImport) {
  const std::vector<int32_t> tokens = integers("tokens");
  const std::vector<int32_t> targets = integers("targets");
  const auto rows = static_cast<int64_t>(tokens.size());
  test::TinyGpt gpt(config_, {rows / config_.context, config_.context});
  const Status imported =
      WholeState(config_, {gpt.store.values().data()}, host_).import(GetParam());
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  const double loss = gpt.loss({.tokens = tokens.data(),
                                .targets = targets.data(),
                                .batch = rows / config_.context,
                                .sequence = config_.context,
                                .gradient_scale = 1.0f / static_cast<float>(rows)});
  const double expected = std::stod(metadata("loss"));
  const auto counted = static_cast<double>(
      std::ranges::count_if(targets, [](int32_t target) { return target >= 0; }));
  EXPECT_NEAR(loss / counted, expected, kLossTolerance * expected);
}

TEST_P(HuggingFaceGolden, IsExportedAsPyTorchWroteIt) {
  TemporaryFolder folder;
  const Status done = export_golden(folder);
  ASSERT_TRUE(done.ok()) << done.error().message;

  const TensorFile exported = TensorFile::open(folder.file("exported")).value();
  std::set<std::string> theirs;
  size_t compared = 0;
  for (const TensorInfo& tensor : golden_.header().tensors) {
    if (!is_ours(tensor.name)) continue;
    theirs.insert(tensor.name);
    const TensorInfo* ours = exported.find(new_name(tensor.name));
    ASSERT_NE(ours, nullptr) << tensor.name;
    EXPECT_EQ(ours->shape, tensor.shape) << tensor.name;
    if (tensor.dtype != "F32") continue;
    EXPECT_TRUE(bytes_of(exported, *ours) == bytes_of(golden_.file_of(tensor), tensor))
        << tensor.name;
    ++compared;
  }
  EXPECT_EQ(exported.header().tensors.size(), theirs.size());
  // GPT-2 has two embeddings and four matrices in 16 bits, the Llama one and seven, BERT one and
  // six.
  EXPECT_EQ(compared, theirs.size() - (is_llama() ? 8 : is_bert() ? 7 : 6));

  std::vector<float> again(parameters_.size());
  ASSERT_TRUE(WholeState(config_, {again.data()}, host_).import(folder.file("exported")).ok());
  EXPECT_EQ(std::memcmp(again.data(), parameters_.data(), again.size() * sizeof(float)), 0);
}

TEST_P(HuggingFaceGolden, IsExportedInBf16AsPyTorchRoundedIt) {
  TemporaryFolder folder;
  const Status done = export_golden(folder, {.dtype = kernels::DType::kBf16});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const TensorFile exported = TensorFile::open(folder.file("exported")).value();
  size_t compared = 0;
  for (const TensorInfo& tensor : golden_.header().tensors) {
    if (tensor.dtype != "BF16" || tensor.name == "lm_head.weight") continue;
    const TensorInfo* ours = exported.find(tensor.name);
    ASSERT_NE(ours, nullptr) << tensor.name;
    EXPECT_EQ(ours->dtype, "BF16");
    EXPECT_TRUE(bytes_of(exported, *ours) == bytes_of(golden_.file_of(tensor), tensor))
        << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, is_llama() ? 7u : is_bert() ? 6u : 4u);
}

INSTANTIATE_TEST_SUITE_P(Files, HuggingFaceGolden, ::testing::ValuesIn(golden_paths()),
                         [](const auto& info) {
                           if (info.param.ends_with("bert.safetensors")) return "Bert";
                           return info.param.ends_with(".json") ? "Llama" : "Gpt2";
                         });

}  // namespace
}  // namespace lockstep::train
